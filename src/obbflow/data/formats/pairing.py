"""Image and label files of one folder tree, brought together by their names."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from obbflow.data.formats.source import (
    Issue,
    LabelFile,
    Scene,
    compose,
    make_issue,
    relative,
    shorten,
)
from obbflow.data.images import ImageFacts, is_image_name
from obbflow.errors import DataError

SPLIT_NAMES = {
    "train": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
}
"""Name of a folder or list, small letters -> split; "test" is not read."""

_LABEL_SUFFIXES = (".txt", ".xml", ".json")

ReadFile = Callable[[Path, ImageFacts], LabelFile]
"""(label file, facts of its image) -> its content."""


def walk(folder: Path, *, skip: Iterable[str] = ()) -> Iterator[Path]:
    """Yield all files below a folder in order of names, hidden ones left out; none without it.

    A folder called like a label file is yielded as well: whoever reads it will say that it is none,
    where otherwise its image would have no labels.

    Args:
        folder: Links are followed, each folder is entered once.
        skip: Names of folders and files, small letters, that are left out.

    Raises:
        DataError: If a folder cannot be listed.
    """
    if not folder.is_dir():
        return
    left_out = {*skip}
    seen: set[Path] = set()  # links may lead in a circle
    for parent, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        target = Path(parent).resolve()
        if target in seen:
            folders.clear()
            continue
        seen.add(target)
        folders[:] = sorted(
            name for name in folders if name[0] != "." and name.lower() not in left_out
        )
        names += [name for name in folders if name.lower().endswith(_LABEL_SUFFIXES)]
        for name in sorted(names):
            if name[0] != "." and name.lower() not in left_out:
                yield Path(parent, name)


def by_name(files: Iterable[Path], root: Path, dropped: re.Pattern[str]) -> dict[str, Path]:
    """Return files by the name that joins image and label: path below ``root``, no ending.

    A folder called after a split gets that split's name, "Valid" becomes "val".

    Args:
        files: Files below ``root``.
        root: Where names start.
        dropped: Folders whose whole name matches are no part of the name.

    Raises:
        DataError: If two files have the same name then.
    """
    result: dict[str, Path] = {}
    clashes = []
    for path in files:
        parents = path.relative_to(root).parts[:-1]
        kept = [_as_split(part) for part in parents if not dropped.fullmatch(part)]
        name = compose("/".join([*kept, path.stem]))
        if name in result:
            other = path.name if path.parent == result[name].parent else path
            clashes.append(f"{result[name]} and {other}")
        result[name] = path
    if clashes:
        raise DataError(
            f"{shorten(clashes)}: two files with the same name but for the ending; images, "
            "labels and tiles belong together by this name. Rename or remove one of the two"
        )
    return result


def split_of(name: str) -> str | None:
    """Return "train", "val" or "test" where one of a name's folders says so, else None."""
    return next((part for part in name.split("/")[:-1] if part in SPLIT_NAMES.values()), None)


def pair(
    root: Path,
    images: Mapping[str, Path],
    labels: Mapping[str, Path],
    splits: Mapping[str, str | None],
    read: ReadFile,
    issues: list[Issue],
) -> list[Scene]:
    """Return the scenes of train and val, each image with the label file of its name.

    Args:
        root: Files are named relative to it.
        images: Name -> image.
        labels: Name -> label file; one without an image gets a row in ``issues``.
        splits: Name -> "train", "val", None to let us choose, or "test" to leave it out.
        read: Reads a label file.
        issues: Rows are added here.
    """
    for name in sorted(labels.keys() - images.keys()):
        message = f"no image {name} for this label file"
        issues.append(
            make_issue(relative(root, labels[name]), "label_without_image", message, "left out")
        )
    scenes, n_others = [], 0
    for name, path in images.items():
        split, label = splits[name], labels.get(name)
        if split == "test":
            n_others += 1
            continue
        scene = Scene(
            image_id=name if split is None or name.startswith(f"{split}/") else f"{split}/{name}",
            image=path,
            split=split,
            source="" if label is None else relative(root, label),
            read=None if label is None else partial(read, label),
        )
        scenes.append(scene)
    if n_others:
        message = f"{n_others:,} images that are neither for training nor for validation"
        issues.append(make_issue(".", "test_split", message, "left out", severity="info"))
    return scenes


def find_pairs(
    root: Path,
    label_suffix: str,
    dropped: re.Pattern[str],
    read: ReadFile,
    issues: list[Issue],
    *,
    skip: Iterable[str] = (),
    split_of_name: Callable[[str], str | None] = split_of,
) -> list[Scene]:
    """Return the scenes of a tree where image and label file have the same name.

    Args:
        root: The data set's folder.
        label_suffix: Ending of label files, small letters: ".xml".
        dropped: Folders that are no part of a name, such as those of images and of labels.
        read: Reads a label file.
        issues: Rows are added for labels without an image.
        skip: Names of folders and files, small letters, that are left out.
        split_of_name: Returns "train", "val", None to let us choose, or "test" to leave it out.

    Raises:
        DataError: If two images or two label files claim one name.
    """
    files = list(walk(root, skip=skip))
    images = by_name((path for path in files if is_image_name(path.name)), root, dropped)
    labels = by_name((path for path in files if path.suffix.lower() == label_suffix), root, dropped)
    splits = {name: split_of_name(name) for name in images}
    return pair(root, images, labels, splits, read, issues)


def _raise(error: OSError) -> None:
    raise DataError(
        f"{error.filename}: cannot be read ({error.strerror}); make it readable or remove it"
    ) from error


def _as_split(folder: str) -> str:
    return SPLIT_NAMES.get(folder.lower(), folder)
