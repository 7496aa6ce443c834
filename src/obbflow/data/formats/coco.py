"""COCO: one JSON file a split, or one for all, with polygons or rotated boxes.

The corners of an object come from its ``segmentation``: a polygon of four corners as it is, others
as the rectangle of least area around them. Without a polygon, a ``bbox`` of five numbers is read:
(cx, cy, w, h, angle), px, by the convention of ``dataset.coco_angle``. A bbox of four numbers is
upright and no object here. ``difficult`` and ``ignore`` may be 0 or 1.

The JSON files lie in the data set's folder, in annotations/ or in the folder of a split. A split is
known by a word of the file's name, instances_train2017, or by the folder's. Images are looked for
in images/<split>, <split>, images/ and beside the JSON file.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from obbflow.config import DatasetSection
from obbflow.data.formats.coco_objects import CocoObject, needs_angle, read_object
from obbflow.data.formats.detect import describe_other_format
from obbflow.data.formats.pairing import SPLIT_NAMES, walk
from obbflow.data.formats.polygons import Fault
from obbflow.data.formats.rotated import corners_of_rboxes, shorten_value
from obbflow.data.formats.source import (
    BadLine,
    Issue,
    LabelFile,
    LabelLine,
    Scene,
    as_size,
    clean_name,
    compose,
    make_issue,
    read_text,
    relative,
)
from obbflow.data.images import ImageFacts, is_image_name
from obbflow.errors import DataError

_FOLDERS = ("annotations", "labels")
_INSTANCES = "instances"
_NOT_READ = re.compile(r"(test|unlabell?ed)\d*", re.IGNORECASE)
"""Folders of images that need no entry."""


@dataclass
class _Entry:
    """An entry of ``images``, and what ``annotations`` say of it."""

    name: str  # path of the image, posix, as written
    size: tuple[int, int] | None
    objects: list[tuple[int, CocoObject]] = field(default_factory=list)
    bad_lines: list[BadLine] = field(default_factory=list)

    def to_label_file(self) -> LabelFile:
        boxes = [found.shape for _, found in self.objects if len(found.shape) == 5]
        corners = iter(corners_of_rboxes(boxes))
        objects = [
            LabelLine(
                number,
                next(corners) if len(found.shape) == 5 else found.shape,
                found.class_name,
                found.is_difficult,
            )
            for number, found in self.objects
        ]
        return LabelFile(objects, self.bad_lines, size=self.size)


def find_scenes(root: Path, dataset: DatasetSection, issues: list[Issue]) -> list[Scene]:
    """Return the scenes of a data set in COCO's format; the line of an object is its number.

    Args:
        root: The data set's folder.
        dataset: ``coco_angle`` counts.
        issues: Rows are added for entries without an image, for images without an entry and for
            files that are not COCO's.

    Raises:
        DataError: If there is no COCO file, one is no whole JSON, or rotated boxes need a
            ``dataset.coco_angle``.
    """
    scenes: list[Scene] = []
    listed: set[Path] = set()
    is_found = False
    for path, split in _find_files(root):
        source = relative(root, path)
        content = _load(path)
        if not isinstance(content, dict) or not isinstance(content.get("images"), list):
            message = "a JSON file without a list of images, so not one of COCO's"
            issues.append(make_issue(source, "not_coco", message, "left out", severity="info"))
            continue
        is_found = True
        if split == "test":
            message = "the test split, which is neither for training nor for validation"
            issues.append(make_issue(source, "test_split", message, "left out", severity="info"))
            listed |= _find_listed(root, path, split, content)
            continue
        entries = _read_entries(path, source, content, dataset.coco_angle, issues)
        found = _make_scenes(root, path, split, entries, issues)
        listed |= {scene.image.resolve() for scene in found}
        scenes += found
    if not is_found:
        hint = describe_other_format(root, "coco")
        raise DataError(
            f"{root}: no COCO file; put it there or in annotations/, as instances_train.json, "
            f"or set dataset.data_root to another folder.{hint}"
        )
    _report_unlisted(root, listed, issues)
    return scenes


def _find_files(root: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield (JSON file, split); beside instances_*.json no others, they repeat its images."""
    inner = [path for path in sorted(root.iterdir()) if path.is_dir()]
    splits = [path for path in inner if path.name.lower() in SPLIT_NAMES]
    labels = [path for path in inner if path.name.lower() in _FOLDERS]
    for folder in (root, *labels, *splits):
        files = [path for path in sorted(folder.iterdir()) if path.suffix.lower() == ".json"]
        best = [path for path in files if path.name.lower().startswith(_INSTANCES)]
        for path in best or [path for path in files if path.name[0] != "."]:
            yield path, _split_of(path)


def _split_of(path: Path) -> str | None:
    words = re.findall(r"[a-z]+", path.stem.lower())
    named = [SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES]
    return named[0] if named else SPLIT_NAMES.get(path.parent.name.lower())


def _load(path: Path) -> object:
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}:{error.lineno}: no whole JSON ({error.msg}); correct or replace the file"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: no usable JSON ({error}); correct or replace it") from error


def _read_entries(
    path: Path, source: str, content: dict[str, Any], angle: str | None, issues: list[Issue]
) -> list[_Entry]:
    """Return the images of a file with their objects; other entries become issues."""
    images: dict[int | str, _Entry] = {}
    for number, item in _items(content, "images"):
        name = _read_name(item)
        key = item.get("id") if isinstance(item, dict) else None
        if name is None or not isinstance(key, int | str) or key in images:
            is_again = isinstance(key, int | str) and key in images
            what = (
                f"has the id {shorten_value(key)} of an image above"
                if is_again
                else ("has no file_name or no id")
            )
            message = f"images[{number}] {what}"
            row = make_issue(source, "bad_image", message, "dropped", line=number, severity="error")
            issues.append(row)
            continue
        size = as_size(item.get("width"), item.get("height"))
        images[key] = _Entry(name, size)
    categories = _read_categories(source, content, issues)
    for number, item in _items(content, "annotations"):
        key = item.get("image_id") if isinstance(item, dict) else None
        entry = images.get(key) if isinstance(key, int | str) else None
        if not isinstance(item, dict) or entry is None:
            message = f"annotations[{number}] has the image_id {shorten_value(key)}: no such image"
            row = make_issue(source, "bad_image", message, "dropped", line=number, severity="error")
            issues.append(row)
            continue
        if angle is None and needs_angle(item):
            raise DataError(
                f"{path}: annotations[{number}]: bbox is a rotated box (cx, cy, w, h, angle), and "
                "nothing says how its angle is meant; set dataset.coco_angle to "
                "degrees_clockwise, degrees_counter_clockwise (as Detectron2), radians_clockwise "
                "or radians_counter_clockwise, as seen on the screen"
            )
        found = read_object(item, categories, angle)
        if isinstance(found, Fault):
            entry.bad_lines.append(BadLine(number, *found))
        else:
            entry.objects.append((number, found))
    return list(images.values())


def _read_categories(
    source: str, content: dict[str, Any], issues: list[Issue]
) -> dict[int | str, str]:
    """Return category id -> class; an entry without a name, or of an id above, is an issue."""
    categories: dict[int | str, str] = {}
    for number, item in _items(content, "categories"):
        key, name = (item.get("id"), item.get("name")) if isinstance(item, dict) else (None, None)
        name = clean_name(name) if isinstance(name, str) else ""
        if not name or not isinstance(key, int | str) or key in categories:
            message = f"categories[{number}] has no name, or no id of its own"
            row = make_issue(source, "bad_category", message, "dropped", severity="error")
            issues.append(row)
            continue
        categories[key] = name
    return categories


def _read_name(item: object) -> str | None:
    """Return the path of an image, posix, None of an entry without it."""
    name = item.get("file_name", item.get("filename")) if isinstance(item, dict) else None
    return name.replace("\\", "/") if isinstance(name, str) else None


def _items(content: dict[str, Any], key: str) -> Iterator[tuple[int, Any]]:
    """Yield (number from 1, entry) of a list that may be missing."""
    value = content.get(key)
    return enumerate(value if isinstance(value, list) else [], start=1)


def _make_scenes(
    root: Path, path: Path, split: str | None, entries: list[_Entry], issues: list[Issue]
) -> list[Scene]:
    places = _image_folders(root, path, split)
    source = relative(root, path)
    prefix = "" if split is None else f"{split}/"
    scenes = []
    for entry in entries:
        image = _find_image(places, entry.name)
        if image is None:
            count = len(entry.objects) + len(entry.bad_lines)
            where = ", ".join(map(str, places))
            message = f"no image {shorten_value(entry.name)} in {where} ({count:,} of labels)"
            row = make_issue(source, "missing_image", message, "dropped", severity="error")
            issues.append(row)
            continue
        name = compose(PurePosixPath(entry.name).with_suffix("").as_posix())
        scene = Scene(
            image_id=name if name.startswith(prefix) else prefix + name,
            image=image,
            split=split,
            source=source,
            read=partial(_give, entry.to_label_file()),
        )
        scenes.append(scene)
    return scenes


def _find_image(places: list[Path], name: str) -> Path | None:
    """Return the image that an entry names, from the first place that has it."""
    pure = PurePosixPath(name)
    if not is_image_name(name) or pure.is_absolute() or ".." in pure.parts or "\0" in name:
        return None
    found = (place / pure for place in places if os.path.isfile(place / pure))  # noqa: PTH113
    return next(found, None)


def _find_listed(root: Path, path: Path, split: str | None, content: dict[str, Any]) -> set[Path]:
    """Return the images that a file lists and does not make scenes of, links followed."""
    places = _image_folders(root, path, split)
    names = [_read_name(item) for _, item in _items(content, "images")]
    found = (_find_image(places, name) for name in names if name is not None)
    return {image.resolve() for image in found if image is not None}


def _report_unlisted(root: Path, listed: set[Path], issues: list[Issue]) -> None:
    """Add an issue for each image that no file lists, and one for all of a test split."""
    n_others = 0
    for image in walk(root):
        if not is_image_name(image.name) or image.resolve() in listed:
            continue
        name = relative(root, image)
        if any(map(_NOT_READ.fullmatch, name.split("/")[:-1])):
            n_others += 1
            continue
        message = "no JSON file lists this image, so nobody knows what it shows"
        issues.append(make_issue(name, "image_not_listed", message, "left out"))
    if n_others:
        message = f"{n_others:,} images that are neither for training nor for validation"
        issues.append(make_issue(".", "test_split", message, "left out", severity="info"))


def _give(labels: LabelFile, _: ImageFacts) -> LabelFile:
    return labels


def _image_folders(root: Path, path: Path, split: str | None) -> list[Path]:
    """Return the folders that the images of a JSON file may be in, likeliest first."""
    same = [name for name, meaning in SPLIT_NAMES.items() if meaning == split]
    years = re.findall(r"(?:train|val)\d+", path.stem.lower())
    places = [root / "images" / name for name in (*years, *same)]
    places += [root / name / "images" for name in same]
    places += [root / name for name in (*years, *same)]
    places += [root / "images", path.parent / "images", path.parent, root]
    return [place for place in dict.fromkeys(places) if place.is_dir()]
