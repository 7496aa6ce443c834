"""Ultralytics YOLO-OBB: a text file an image, ``class x1 y1 x2 y2 x3 y3 x4 y4``.

The class is a number, counted from 0, whose name is in data.yaml or classes.txt; coordinates are
fractions of the image's width and height as shown. The label file of an image has its path, with
the last folder called images replaced by labels. Images are where data.yaml says, or else in
images/train, images/val, or in train/images, val/images (valid and validation are val), or in
images/ without a split.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from obbflow.config import DatasetSection
from obbflow.data.formats.pairing import SPLIT_NAMES, by_name, pair, walk
from obbflow.data.formats.rotated import shorten_value
from obbflow.data.formats.source import (
    BadLine,
    Issue,
    LabelFile,
    LabelLine,
    Scene,
    compose,
    read_text,
    relative,
)
from obbflow.data.formats.yolo_yaml import read_yolo_set
from obbflow.data.images import ImageFacts, is_image_name

_DROPPED = re.compile("images", re.IGNORECASE)
_CLASS = re.compile(r"[0-9]{1,6}(?:\.0*)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LINE_END = re.compile(r"\r\n|\r|\n")
_NEAR = 2.0  # images: a corner farther from the image's centre than this is no fraction
_NO_LABELS = ("classes.txt", "train.txt", "val.txt", "test.txt")
_LINE = "a line is class x1 y1 x2 y2 x3 y3 x4 y4"


def find_scenes(root: Path, _: DatasetSection, issues: list[Issue]) -> list[Scene]:
    """Return the scenes of a data set in Ultralytics' layout.

    Args:
        root: The data set's folder.
        issues: Rows are added for labels without an image and paths that lead nowhere.

    Raises:
        DataError: If there are no class names, or two images claim one name.
    """
    yolo_set = read_yolo_set(root, issues)
    read = partial(_read, yolo_set.names)
    folders: Iterable[tuple[str | None, Path]] = yolo_set.images or _find_folders(root)
    scenes = []
    for split, place in folders:
        images = _list_images(root, place)
        labels = _find_labels(root, images)
        scenes += pair(root, images, labels, dict.fromkeys(images, split), read, issues)
    return scenes


def parse_label_text(text: str, names: Mapping[int, str], facts: ImageFacts) -> LabelFile:
    """Return the objects of a label file in px.

    Args:
        text: Of the file.
        names: Class number -> name.
        facts: Width and height count.
    """
    result = LabelFile()
    for number, line in enumerate(_LINE_END.split(text), start=1):
        fields = line.split()
        if not fields:
            continue
        parsed = _parse_line(number, fields, names, facts)
        if isinstance(parsed, LabelLine):
            result.objects.append(parsed)
        else:
            result.bad_lines.append(parsed)
    return result


def label_path(root: Path, image: Path) -> Path:
    """Return where the label file of an image is, if it has one.

    Args:
        root: The data set's folder; names of folders above it count for nothing.
        image: The image file.
    """
    place, parts = _last_images(root, image), list(image.parts)
    if parts[place].lower() == "images":
        parts[place] = "labels"
    return Path(*parts).with_name(f"{compose(image.stem)}.txt")


def _parse_line(
    line: int, fields: list[str], names: Mapping[int, str], facts: ImageFacts
) -> LabelLine | BadLine:
    if len(fields) != 9:
        hint = "; 5 fields are an upright box, which has no angle" if len(fields) == 5 else ""
        return BadLine(line, "field_count", f"{len(fields)} fields; {_LINE}{hint}")
    for position, text in enumerate(fields[1:], start=1):
        if not _NUMBER.fullmatch(text):
            message = f"coordinate {position} is {shorten_value(text)}, which is no number"
            return BadLine(line, "not_a_number", message)
    name = names.get(int(fields[0].split(".")[0])) if _CLASS.fullmatch(fields[0]) else None
    if name is None:
        message = f"the class is {shorten_value(fields[0])}; the names are of 0 to {max(names)}"
        return BadLine(line, "bad_class", message)
    values = [float(text) for text in fields[1:]]
    if not all(abs(value - 0.5) <= _NEAR for value in values):
        message = f"coordinates up to {max(values, key=abs):g}; they are fractions of the image"
        return BadLine(line, "not_normalised", message)
    sizes = (facts.width, facts.height) * 4
    corners = tuple(value * size for value, size in zip(values, sizes, strict=True))
    return LabelLine(line, corners, name, False)


def _read(names: Mapping[int, str], path: Path, facts: ImageFacts) -> LabelFile:
    return parse_label_text(read_text(path), names, facts)


def _find_folders(root: Path) -> Iterator[tuple[str | None, Path]]:
    """Yield (split, folder of images) of the layouts that need no data.yaml."""
    images = root / "images"
    found = False
    for parent in (images, root):
        for folder in sorted(parent.iterdir()) if parent.is_dir() and not found else ():
            split = SPLIT_NAMES.get(folder.name.lower())
            if split is not None and folder.is_dir():
                found = True
                yield split, folder
    if not found:
        yield None, images if images.is_dir() else root


def _list_images(root: Path, place: Path) -> dict[str, Path]:
    """Return name -> image of a folder, or of a text file with a path a line."""
    if place.is_dir():
        return by_name((path for path in walk(place) if is_image_name(path.name)), place, _DROPPED)
    lines = [line.strip() for line in _LINE_END.split(read_text(place))]
    paths = [place.parent / line for line in lines if line and is_image_name(line)]
    start = {path: _last_images(root, path) for path in paths}
    return {
        compose("/".join(path.with_suffix("").parts[start[path] + 1 :])): path for path in paths
    }


def _last_images(root: Path, path: Path) -> int:
    """Return the position of a path's last folder called images; without one, of its folder."""
    first = len(root.parts) if path.is_relative_to(root) else 1
    folders = range(len(path.parts) - 2, first - 1, -1)
    is_images = (place for place in folders if path.parts[place].lower() == "images")
    return next(is_images, len(path.parts) - 2)


def _find_labels(root: Path, images: Mapping[str, Path]) -> dict[str, Path]:
    """Return name -> label file; one that belongs to no image goes by its path."""
    wanted = {label_path(root, path): name for name, path in images.items()}
    labels = {}
    for folder in sorted({path.parent for path in wanted}):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.suffix.lower() == ".txt" and path.name.lower() not in _NO_LABELS:
                key = path.with_name(f"{compose(path.stem)}.txt")
                labels[wanted.get(key, relative(root, path))] = path
    return labels
