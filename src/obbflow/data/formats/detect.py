"""Which label format lies in a folder, for the message when another one was expected."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from obbflow.data.formats.label_lines import parse_label_text

_FILES_A_KIND = 4  # that are opened
_FILES_LISTED = 20_000  # a label file that comes later is not found
_HEAD_BYTES = 65_536
_SLACK = 0.5  # beyond 0..1, of boxes that reach out of their image
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


class FoundFormat(NamedTuple):
    """A format, as ``dataset.format`` names it (None: it is not read), and what gives it away."""

    name: str | None
    description: str
    file: Path


def find_format(root: Path) -> FoundFormat | None:
    """Return the format of the first label files below a folder, known by their content.

    A few files are opened, and only their first 64 KiB.

    Args:
        root: A folder.

    Returns:
        None when no known format is there.
    """
    for path in _some_files(root, _RECOGNISERS):
        found = _RECOGNISERS[path.suffix.lower()](_read_head(path))
        if found is not None:
            return FoundFormat(*found, path)
    return None


def describe_other_format(root: Path, expected: str) -> str:
    """Return a sentence on labels of another format than expected, to follow a message.

    Args:
        root: The data set's folder.
        expected: Value of ``dataset.format``.

    Returns:
        What the labels look like and what to do, with a blank before it; "" if nothing is found.
    """
    found = find_format(root)
    if found is None or found.name == ("dota" if expected == "synthetic" else expected):
        return ""
    advice = (
        "convert them to one of the formats in docs/data.md"
        if found.name is None
        else f"set dataset.format={found.name}"
    )
    return f" {found.file} looks like {found.description}: {advice}."


def _some_files(root: Path, suffixes: Iterable[str]) -> Iterator[Path]:
    """Yield the first files of each suffix, in order of folders and names."""
    left = dict.fromkeys(suffixes, _FILES_A_KIND)
    n_listed = 0
    for parent, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files):
            path = Path(parent, name)
            suffix = path.suffix.lower()
            if name[0] != "." and left.get(suffix, 0) and os.access(path, os.R_OK):
                left[suffix] -= 1
                yield path
        n_listed += len(files)
        if n_listed > _FILES_LISTED:
            return


def _read_head(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(_HEAD_BYTES).decode("utf-8-sig", errors="replace")


_Guess = tuple[str | None, str] | None


def _recognise_text(text: str) -> _Guess:
    """Tell YOLO from DOTA by the first line that is one of both."""
    if parse_label_text(text).objects:
        return "dota", "DOTA labels (8 px and a class a line)"
    for line in text.splitlines():
        fields = line.split()
        if not fields or not fields[0].isdecimal() or not all(map(_NUMBER.fullmatch, fields)):
            continue
        numbers = [float(field) for field in fields]
        if not all(-_SLACK <= number <= 1 + _SLACK for number in numbers[1:]):
            continue
        if len(numbers) == 9:
            return (
                "yolo_obb",
                "YOLO-OBB labels (a class number and 8 fractions of the image a line)",
            )
        if len(numbers) == 5:
            return None, "YOLO labels of upright boxes (a class number and 4 fractions a line)"
    return None


def _recognise_json(text: str) -> _Guess:
    if re.search(r'"type"\s*:\s*"FeatureCollection"', text):
        return "airbus_playground", "an Airbus Playground export (GeoJSON)"
    keys = r'"(images|annotations|categories|file_name|image_id|bbox|segmentation)"\s*:'
    return ("coco", "a COCO file (JSON)") if len(set(re.findall(keys, text))) > 1 else None


def _recognise_xml(text: str) -> _Guess:
    if re.search(r"<HRSC_Image|<HRSC_Object", text):
        return "hrsc", "HRSC2016 labels (XML)"
    if "<possibleresult" in text:
        return "fair1m", "FAIR1M labels (XML)"
    if "<robndbox>" in text:
        return "hrsc", "roLabelImg labels (XML)"
    if "<bndbox>" in text:
        return None, "Pascal VOC labels (XML)"
    return None


def _recognise_csv(text: str) -> _Guess:
    header = text.lower().split("\n", 1)[0]
    columns = {name.strip(' \r"') for name in header.split(",")}
    if {"dota_coords", "class_name"} <= columns:
        return "airbus_playground", "Airbus Playground annotations (CSV)"
    if {"image_id", "geometry", "class"} <= columns:
        return "airbus_playground", "annotations of the Airbus aircraft sample (CSV)"
    return None


_RECOGNISERS: dict[str, Callable[[str], _Guess]] = {
    ".txt": _recognise_text,
    ".json": _recognise_json,
    ".geojson": _recognise_json,
    ".xml": _recognise_xml,
    ".csv": _recognise_csv,
}
