"""What Ultralytics' data.yaml says: class names, and where the images of each split are."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from obbflow.data.formats.detect import describe_other_format
from obbflow.data.formats.pairing import SPLIT_NAMES
from obbflow.data.formats.rotated import shorten_value
from obbflow.data.formats.source import Issue, clean_name, make_issue, read_text, relative
from obbflow.errors import DataError

_FIRST = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
_NAME_LISTS = ("classes.txt", "labels/classes.txt", "obj.names")
_LARGEST = 10**9
_UNUSABLE = (
    *(yaml.YAMLError, ValueError, RecursionError),
    *(LookupError, AttributeError, ArithmeticError),  # of odd values: !!float "", !!bool 5
)
_REMEDY = "as data.yaml holds it, `names: [ship, plane]` or `names: {0: ship, 1: plane}`"


@dataclass(frozen=True)
class YoloSet:
    """Class names by number, and (split, folder or list of images) as data.yaml names them."""

    names: dict[int, str]
    images: list[tuple[str, Path]]


def read_yolo_set(root: Path, issues: list[Issue]) -> YoloSet:
    """Return the class names of a data set, and its images where data.yaml names ones that exist.

    Args:
        root: The data set's folder.
        issues: A row is added when data.yaml names images that are not there.

    Raises:
        DataError: If there are no class names, or the file with them cannot be used.
    """
    for path in _find_yaml(root):
        content = _load(path)
        if isinstance(content, dict) and "names" in content:
            names = _read_names(path, content["names"])
            return YoloSet(names, _find_images(path, content, root, issues))
    for name in _NAME_LISTS:
        path = root / name
        if path.is_file():
            lines = [line.strip() for line in read_text(path).splitlines()]
            return YoloSet({number: line for number, line in enumerate(lines) if line}, [])
    raise DataError(
        f"{root}: no data.yaml or classes.txt with the names of the classes, and YOLO labels hold "
        f"numbers only. Put one there, {_REMEDY}.{describe_other_format(root, 'yolo_obb')}"
    )


def _find_yaml(root: Path) -> list[Path]:
    """Return the YAML files of a folder, the usual names first."""
    found = [path for path in root.iterdir() if path.suffix.lower() in {".yaml", ".yml"}]
    order = {name: number for number, name in enumerate(_FIRST)}
    return sorted(found, key=lambda path: (order.get(path.name, len(order)), path.name))


def _load(path: Path) -> object:
    try:
        return yaml.safe_load(read_text(path))
    except _UNUSABLE as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise DataError(f"{path}{line}: no valid YAML ({reason}); correct it") from error


def _read_names(path: Path, value: object) -> dict[int, str]:
    pairs = list(enumerate(value)) if isinstance(value, list) else None
    if isinstance(value, dict):
        pairs = list(value.items())
    if not pairs:
        raise DataError(f"{path}: names holds no class; write them {_REMEDY}")
    names: dict[int, str] = {}
    for key, name in pairs:
        number = _read_number(key)
        if number is None or number in names:
            again = "twice" if number is not None else "for a class number"
            raise DataError(f"{path}: names has {shorten_value(key)} {again}; write {_REMEDY}")
        text = name if isinstance(name, str) else _as_text(name)
        if not text.strip():
            raise DataError(
                f"{path}: the name of class {number} is {shorten_value(name)}, which is no "
                "text; put it in quotes"
            )
        names[number] = clean_name(text)
    return names


def _read_number(key: object) -> int | None:
    """Return a class number of up to six digits, written as a number or as text."""
    text = key if isinstance(key, str) else _as_text(key)
    return int(text) if text.isdecimal() and len(text) < 7 else None


def _as_text(value: object) -> str:
    """Return a whole number, such as the class 737, as text; "" for anything else."""
    return str(value) if type(value) is int and abs(value) < _LARGEST else ""


def _find_images(
    path: Path, content: dict[Any, Any], root: Path, issues: list[Issue]
) -> list[tuple[str, Path]]:
    """Return (split, folder or list file) for all that there are; none unless train is there."""
    folder = content.get("path")
    base = path.parent / (folder if isinstance(folder, str) else _as_text(folder))
    found, missing = [], []
    for key, split in SPLIT_NAMES.items():
        entries = content.get(key) or []
        for entry in entries if isinstance(entries, list) else [entries]:
            places = _candidates(base, root, entry) if isinstance(entry, str) else iter(())
            place = next((each for each in places if os.path.exists(each)), None)  # noqa: PTH110
            if place is None:
                missing.append(f"{key}: {shorten_value(entry)}")
            else:
                found.append((split, place))
    is_usable = any(split == "train" for split, _ in found)
    for text in missing:
        if is_usable and not text.startswith("test"):
            raise DataError(f"{path}: {text}: there is no such file or folder; correct the path")
    if missing and not is_usable:
        message = f"there is no {', '.join(missing)}; folders of the usual names are read"
        issues.append(make_issue(relative(root, path), "missing_path", message, "repaired"))
    return found if is_usable else []


def _candidates(base: Path, root: Path, entry: str) -> Iterator[Path]:
    """Yield where a path of data.yaml may lead; exporters write "../train/images" for "train"."""
    yield base / entry
    yield root / entry
    yield root / entry.removeprefix("../")
