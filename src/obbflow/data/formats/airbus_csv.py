"""CSV files of Airbus data: annotations of Airbus Playground, and of the Airbus aircraft sample.

    tile_relpath,dataset_id,zone_id,image_id,tile_id,dota_coords,class_name,difficult
    id,image_id,geometry,class

Files are read row by row into columns, so that a million objects take little memory, and each row
is either an object or has a reason why not.
"""

import functools
import json
from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from obbflow.data.formats.airbus_labels import TileLabels, read_tags
from obbflow.data.formats.csv_rows import read_header, read_rows
from obbflow.data.formats.polygons import LARGEST, Fault, corners_of, read_ring
from obbflow.data.formats.source import (
    BadLine,
    Issue,
    LabelFile,
    LabelLine,
    make_issue,
    relative,
)
from obbflow.data.images import ImageFacts

TILE = "tile_relpath"

_PLAYGROUND = (TILE, "dota_coords", "class_name")
_SAMPLE = ("image_id", "geometry", "class")
_DIFFICULTIES = {"": 0, "0": 0, "1": 1, "2": 2, "false": 0, "true": 1, "0.0": 0, "1.0": 1}
_N_NUMBERS = 8
_BRACKETS = str.maketrans("()", "[]")


def find_labels(
    root: Path,
    path: Path,
    tiles_by_name: Callable[[], dict[str, str]],
    difficult_tags: Collection[str],
    issues: list[Issue],
) -> dict[str, TileLabels]:
    """Return the labels of each tile that the annotations name.

    Args:
        root: The data set's folder.
        path: The annotations.
        tiles_by_name: Gives the images below ``root`` by file name: the aircraft sample names
            images without their folder.
        difficult_tags: Tags that mark an object difficult.
        issues: Rows are added for rows that name no tile.

    Raises:
        DataError: If columns are missing, or the file cannot be read as CSV.
    """
    source = relative(root, path)
    is_sample = "geometry" in read_header(path)
    names = tiles_by_name() if is_sample else {}
    tags = frozenset(difficult_tags)
    parse_tags = functools.lru_cache(maxsize=4096)(lambda text: read_tags(text.split(","), tags))
    parse_corners = _parse_ring if is_sample else _parse_numbers
    required = _SAMPLE if is_sample else _PLAYGROUND

    def add_issue(line: int, fault: Fault) -> None:
        issues.append(make_issue(source, *fault, "dropped", line=line, severity="error"))

    rows = _Rows()
    remedy = "set dataset.annotations_file to another file"
    for line, values in read_rows(path, required, ("difficult",), remedy=remedy, on_bad=add_issue):
        tile, geometry, words, difficulty = values
        name = check_tile_path(tile)
        if isinstance(name, Fault):
            add_issue(line, name)
            continue
        named, corners = parse_tags(words), parse_corners(geometry)
        is_difficult = _DIFFICULTIES.get(difficulty.lower())
        tile = names.get(name, name)
        if isinstance(corners, Fault):
            rows.add_fault(tile, line, corners)
        elif isinstance(named, Fault):
            rows.add_fault(tile, line, named)
        elif is_difficult is None:
            message = f"the difficulty is {difficulty!r}; it must be 0, 1 or 2"
            rows.add_fault(tile, line, Fault("bad_difficulty", message))
        else:
            rows.add(tile, line, corners, named[0], difficult=named[1] or is_difficult > 0)
    return rows.by_tile(source)


@functools.lru_cache(maxsize=65_536)  # a tile has many rows
def check_tile_path(text: str) -> str | Fault:
    r"""Return a path below the data set's folder, posix.

    Example:
        >>> check_tile_path("ds\\samples\\z\\i\\t.jpg")
        'ds/samples/z/i/t.jpg'
        >>> check_tile_path("../t.jpg").kind
        'bad_path'
    """
    parts = text.replace("\\", "/").split("/")
    if not parts[0] or not parts[-1] or ".." in parts or "\0" in text:
        return Fault("bad_path", f"{text!r} is no path of an image below dataset.data_root")
    return "/".join(part for part in parts if part not in ("", "."))


class _Rows:
    """Rows of all tiles as columns; a tile is a number here."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._classes: dict[str, int] = {}
        self._tile, self._line, self._class = array("q"), array("q"), array("q")
        self._corners = array("d")
        self._difficult = bytearray()
        self._faults: dict[str, list[BadLine]] = {}

    def add(
        self, tile: str, line: int, corners: Sequence[float], name: str, *, difficult: bool
    ) -> None:
        """Append an object of class ``name``."""
        self._tile.append(self._numbers.setdefault(tile, len(self._numbers)))
        self._line.append(line)
        self._corners.extend(corners)
        self._class.append(self._classes.setdefault(name, len(self._classes)))
        self._difficult.append(difficult)

    def add_fault(self, tile: str, line: int, fault: Fault) -> None:
        """Note a row that is no object."""
        self._numbers.setdefault(tile, len(self._numbers))
        self._faults.setdefault(tile, []).append(BadLine(line, *fault))

    def by_tile(self, source: str) -> dict[str, TileLabels]:
        """Return the labels of each tile; ``source`` is the file as messages show it."""
        tiles = np.frombuffer(self._tile, dtype=np.int64)
        order = np.argsort(tiles, kind="stable")
        counts = np.bincount(tiles, minlength=len(self._numbers))
        ends = np.cumsum(counts)
        starts = ends - counts
        columns = _Columns(
            np.frombuffer(self._line, dtype=np.int64)[order],
            np.frombuffer(self._corners).reshape(-1, _N_NUMBERS)[order],
            np.frombuffer(self._class, dtype=np.int64)[order],
            np.frombuffer(self._difficult, dtype=bool)[order],
            list(self._classes),
        )
        labels = {}
        for tile, start, end in zip(self._numbers, starts.tolist(), ends.tolist(), strict=True):
            faults = self._faults.get(tile, [])
            lines = columns.line[start : start + 1].tolist() + [bad.line for bad in faults[:1]]
            read = functools.partial(columns.read, start, end, faults)
            n_rows = end - start + len(faults)
            count = "1 row" if n_rows == 1 else f"{n_rows:,} rows"
            labels[tile] = TileLabels(source, min(lines), count, read)
        return labels


@dataclass(frozen=True)
class _Columns:
    """Objects of all tiles, those of one tile together."""

    line: np.ndarray
    corners: np.ndarray
    class_number: np.ndarray
    difficult: np.ndarray
    classes: list[str]

    def read(self, start: int, end: int, faults: list[BadLine], _: ImageFacts) -> LabelFile:
        """Return the rows from ``start`` to before ``end`` as the labels of their tile."""
        names = [self.classes[number] for number in self.class_number[start:end].tolist()]
        corners = map(tuple, self.corners[start:end].tolist())
        lines, difficult = self.line[start:end].tolist(), self.difficult[start:end].tolist()
        objects = map(LabelLine, lines, corners, names, difficult)
        return LabelFile(list(objects), list(faults))


def _parse_numbers(text: str) -> tuple[float, ...] | Fault:
    """Return the corners of column dota_coords: eight numbers."""
    fields = text.replace(",", " ").split()
    if len(fields) != _N_NUMBERS:
        return Fault("field_count", f"{len(fields)} coordinates; eight are needed")
    try:
        numbers = tuple(map(float, fields))
    except ValueError as error:
        return Fault("not_a_number", f"a coordinate is no number ({error})")
    if "_" in text:  # float reads 1_000
        return Fault("not_a_number", f"a coordinate is no number: {text!r}")
    if not all(abs(number) <= LARGEST for number in numbers):  # False for NaN too
        return Fault("not_finite", f"a coordinate is no place in an image: {text!r}")
    return numbers


def _parse_ring(text: str) -> tuple[float, ...] | Fault:
    """Return the corners of column geometry: '[(x, y), ...]', which is JSON but for the brackets.

    So no text is evaluated as code.
    """
    try:
        value = json.loads(text.translate(_BRACKETS))
    except (ValueError, RecursionError):
        return Fault("not_a_polygon", "the geometry is no list of points '[(x, y), ...]'")
    ring = read_ring(value)
    return ring if isinstance(ring, Fault) else corners_of([ring])
