"""The scenes of a data set in DOTA layout.

The layouts, with ``same_folder`` without the folders images/ and labelTxt/ where they are missing:

    root/train/images, root/train/labelTxt, root/val/...                    a split as given
    root/images/train, root/labelTxt/train, root/images/val, ...            the same
    root/images, root/labelTxt                                              split by scene here

A label folder may also be named as in DOTA's downloads, labelTxt-v1.0, -v1.5 or -v2.0, and files
may lie in the folders that unpacking makes: images/part1/images, labelTxt-v1.0/labelTxt.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from obbflow.config import DatasetSection
from obbflow.data.formats.detect import describe_other_format
from obbflow.data.formats.label_lines import read_label_file
from obbflow.data.formats.pairing import by_name, walk
from obbflow.data.formats.source import (
    SPLITS,
    Issue,
    LabelFile,
    Scene,
    make_issue,
    relative,
    shorten,
)
from obbflow.data.images import ImageFacts, is_image_name
from obbflow.errors import DataError

IMAGE_FOLDER, LABEL_FOLDER = "images", "labelTxt"

_OF_A_DOWNLOAD = re.compile(r"images|labelTxt|part\d+|DOTA-v\d\.\d_(train|val)", re.IGNORECASE)
"""Folders that are no part of an image's name."""
_UPRIGHT = re.compile(r"\w*reclabelTxt|\w*_Task2_gt|.*_hbb", re.IGNORECASE)
"""Folders in a download that hold upright boxes of the same objects."""
_CUT = re.compile(r"(.+?)__\d+(?:\.\d+)?__-?\d+___-?\d+")
"""Name of a tile as DOTA's and our tools cut it: scene, scale or size, x and y."""


@dataclass(frozen=True)
class _Folders:
    """One folder of images, and where their labels are."""

    prefix: str  # of image ids
    split: str | None
    images: Path
    labels: Path


def find_scenes(root: Path, dataset: DatasetSection, issues: list[Issue]) -> list[Scene]:
    """Return the scenes of a data set in DOTA layout.

    Args:
        root: The data set's folder.
        dataset: ``same_folder`` and ``dota_version`` count.
        issues: Rows are added for files that belong to nothing.

    Raises:
        DataError: If there is no label folder, or two files claim one name.
    """
    scenes = []
    for folders in _find_folders(root, dataset):
        scenes += _pair(root, folders, issues, same_folder=dataset.same_folder)
    return scenes


def find_tiles(
    root: Path, prefix: str, split: str, dataset: DatasetSection, issues: list[Issue]
) -> list[Scene]:
    """Return the ready-made tiles of one root: images/ and labelTxt/, or both side by side.

    Args:
        root: An absolute path.
        prefix: Of the image ids: "train/tiles_1024/".
        split: Of all these tiles.
        dataset: ``dota_version`` counts; ``same_folder`` is found out.
        issues: Rows are added for files that belong to nothing.

    Raises:
        DataError: If there is no label folder, or two files claim one name.
    """
    images = root / IMAGE_FOLDER if (root / IMAGE_FOLDER).is_dir() else root
    is_mixed = images == root or any(map(_is_label, walk(images)))
    labels = images if is_mixed else _find_label_folder(root, dataset.dota_version)
    folders = _Folders(prefix, split, images, labels)
    return _pair(root, folders, issues, same_folder=is_mixed, is_tile=True)


def _find_folders(root: Path, dataset: DatasetSection) -> Iterator[_Folders]:
    """Yield each folder of images with its label folder."""
    same_folder = dataset.same_folder
    outer = [split for split in SPLITS if (root / split).is_dir()]
    inner = [split for split in SPLITS if (root / IMAGE_FOLDER / split).is_dir()]
    for split in outer:
        folder = root / split
        has_images = (folder / IMAGE_FOLDER).is_dir() or not same_folder
        images = folder / IMAGE_FOLDER if has_images else folder
        labels = images if same_folder else _find_label_folder(folder, dataset.dota_version)
        yield _Folders(f"{split}/", split, images, labels)
    if outer:
        return
    has_images = (root / IMAGE_FOLDER).is_dir() or not same_folder
    images = root / IMAGE_FOLDER if has_images else root
    labels = images if same_folder else _find_label_folder(root, dataset.dota_version)
    for split in inner:
        yield _Folders(f"{split}/", split, images / split, labels / split)
    if not inner:
        yield _Folders("", None, images, labels)


def _find_label_folder(folder: Path, version: str | None) -> Path:
    """Return the label folder beside images/, which may be missing.

    Raises:
        DataError: If there are labels of versions and ``version`` does not choose one.
    """
    plain = folder / LABEL_FOLDER
    wanted = folder / f"{LABEL_FOLDER}-v{version}"
    if version is not None and wanted.is_dir():
        return wanted
    versions = sorted(path for path in folder.glob(f"{LABEL_FOLDER}-v*") if path.is_dir())
    if plain.is_dir() or not versions:
        return plain
    if version is None and len(versions) == 1:
        return versions[0]
    raise DataError(
        f"{folder}: the labels are in {shorten(path.name for path in versions)}, and "
        f"dataset.dota_version is {version or 'null'}; set it to the version to be read"
    )


def _pair(
    root: Path,
    folders: _Folders,
    issues: list[Issue],
    *,
    same_folder: bool,
    is_tile: bool = False,
) -> list[Scene]:
    """Return the scenes of one folder, each image with its label file."""
    start = None if is_tile else root  # tiles lie elsewhere: their files are named in full
    found = list(walk(folders.images))
    image_files = (path for path in found if is_image_name(path.name))
    images = by_name(image_files, folders.images, _OF_A_DOWNLOAD)
    if images and not folders.labels.is_dir():
        raise DataError(_describe_missing_labels(root, folders, found))
    label_files = found if same_folder else _walk_labels(start, folders.labels, issues)
    labels = by_name(filter(_is_label, label_files), folders.labels, _OF_A_DOWNLOAD)
    for path in found:
        if not is_image_name(path.name) and not (same_folder and _is_label(path)):
            message = f"{path.name} does not end like an image"
            issues.append(make_issue(relative(start, path), "not_an_image", message, "left out"))
    for name in sorted(labels.keys() - images.keys()):
        message = f"no image {name} for this label file"
        issues.append(
            make_issue(relative(start, labels[name]), "label_without_image", message, "left out")
        )
    scenes = []
    for name, path in images.items():
        label, cut = labels.get(name), _CUT.fullmatch(name)
        scene = Scene(
            image_id=folders.prefix + name,
            image=path,
            split=folders.split,
            source="" if label is None else relative(start, label),
            read=None if label is None else partial(_read, label),
            group=cut[1] if cut else None,
            is_tile=is_tile,
        )
        scenes.append(scene)
    return scenes


def _read(path: Path, _: ImageFacts) -> LabelFile:
    return read_label_file(path)


def _is_label(path: Path) -> bool:
    return path.suffix.lower() == ".txt"


def _walk_labels(start: Path | None, folder: Path, issues: list[Issue]) -> Iterator[Path]:
    """Yield the files of a label folder without the upright boxes that DOTA's downloads add."""
    upright: Counter[str] = Counter()
    for path in walk(folder):
        parents = path.relative_to(folder).parts[:-1]
        depth = next((n for n, name in enumerate(parents) if _UPRIGHT.fullmatch(name)), None)
        if depth is None:
            yield path
        else:
            upright[relative(start, folder.joinpath(*parents[: depth + 1]))] += 1
    for place, count in upright.items():
        message = f"the folder holds upright boxes, which have no angle ({count:,} files)"
        issues.append(make_issue(place, "upright_boxes", message, "left out", severity="info"))


def _describe_missing_labels(root: Path, folders: _Folders, found: list[Path]) -> str:
    hint = describe_other_format(root, "dota")
    if not hint and any(map(_is_label, found)):
        hint = " Set dataset.same_folder=true, as label files lie beside the images."
    if not hint:
        beside = folders.labels.parent
        others = sorted(path.name for path in beside.iterdir() if path.is_dir())
        hint = f" Rename the folder with the label files (there are: {', '.join(others)})."
    return f"{folders.labels}: no such folder, but there are images beside it.{hint}"
