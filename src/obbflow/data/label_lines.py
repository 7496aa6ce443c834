"""The lines of one DOTA label file.

A line is ``x1 y1 x2 y2 x3 y3 x4 y4 class difficult``, fields divided by blanks or tabs. The
difficulty may be missing, and a class may hold blanks: it is all that stands between the eight
numbers and a last 0, 1 or 2. Header lines are known by their content, ``imagesource:`` and
``gsd:``, wherever they stand.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from obbflow.errors import DataError

_HEADER = re.compile(r"(imagesource|gsd)\s*:\s*(.*)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_N_COORDINATES = 8


@dataclass(frozen=True)
class LabelLine:
    """One object as written: 8 corner coordinates in px, class, difficulty 1 or 2, line number."""

    line: int
    corners: tuple[float, ...]
    class_name: str
    difficult: bool


@dataclass(frozen=True)
class BadLine:
    """A line that is no object: its number, the kind of fault and what is wrong."""

    line: int
    kind: str
    message: str


@dataclass(frozen=True)
class LabelFile:
    """What a label file holds; ``gsd`` in metres a px, NaN when it does not say."""

    objects: list[LabelLine] = field(default_factory=list)
    bad_lines: list[BadLine] = field(default_factory=list)
    gsd: float = math.nan

    @property
    def is_normalised(self) -> bool:
        """Whether all coordinates are fractions of the image's size, none in px."""
        values = [value for item in self.objects for value in item.corners]
        return all(0 <= value <= 1 for value in values) and any(0 < value < 1 for value in values)


def read_label_file(path: Path) -> LabelFile:
    """Return the objects, bad lines and ground sampling distance of a label file.

    Raises:
        DataError: If the file is not UTF-8 text.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from error
    return parse_label_text(text)


def parse_label_text(text: str) -> LabelFile:
    r"""Return what the text of a label file says; see the module for the format.

    Example:
        >>> parse_label_text("gsd:0.5\n1 1 9 1 9 5 1 5 storage tank 1").objects[0].class_name
        'storage tank'
    """
    result, gsd = LabelFile(), math.nan
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        fields = line.split()
        if not fields:
            continue
        header = _HEADER.match(line.strip())
        if header:
            gsd = _parse_gsd(header[2]) if header[1].lower() == "gsd" else gsd
            continue
        parsed = _parse_object(number, fields)
        if isinstance(parsed, LabelLine):
            result.objects.append(parsed)
        else:
            result.bad_lines.append(parsed)
    return LabelFile(result.objects, result.bad_lines, gsd)


def _parse_gsd(text: str) -> float:
    """Return metres a px, NaN for "null", "None" and other words."""
    value = float(text) if _NUMBER.fullmatch(text.strip()) else math.nan
    return value if value > 0 else math.nan


def _parse_object(number: int, fields: list[str]) -> LabelLine | BadLine:
    coordinates, rest = fields[:_N_COORDINATES], fields[_N_COORDINATES:]
    for position, text in enumerate(coordinates, start=1):
        if _NUMBER.fullmatch(text):
            continue
        if _NOT_FINITE.fullmatch(text):
            return BadLine(number, "not_finite", f"coordinate {position} is {text!r}")
        if len(fields) <= _N_COORDINATES + 1:
            break  # a field is missing: say so, instead of calling the class a wrong number
        message = f"coordinate {position} is {text!r}, which is no number"
        return BadLine(number, "not_a_number", message)
    else:
        if rest:
            return _name_object(number, coordinates, rest)
    return BadLine(
        number,
        "field_count",
        f"{len(fields)} fields that do not start with 8 numbers and a class; "
        "a line is x1 y1 x2 y2 x3 y3 x4 y4 class difficult",
    )


def _name_object(number: int, coordinates: list[str], rest: list[str]) -> LabelLine | BadLine:
    """Return the object of a line whose coordinates are numbers."""
    name, difficulty = rest, 0.0
    if len(rest) > 1 and _NUMBER.fullmatch(rest[-1]):
        name, difficulty = rest[:-1], float(rest[-1])
    if difficulty not in (0, 1, 2):
        message = f"the difficulty is {rest[-1]!r}; it must be 0, 1 or 2"
        return BadLine(number, "bad_difficulty", message)
    class_name = " ".join(name)
    if "." in class_name and _NUMBER.fullmatch(class_name):
        message = f"the class is the number {class_name}; the class stands behind the corners"
        return BadLine(number, "bad_class", message)
    corners = tuple(float(text) for text in coordinates)
    if not all(map(math.isfinite, corners)):
        return BadLine(number, "not_finite", "a coordinate is too large for a number")
    return LabelLine(number, corners, class_name, difficulty > 0)
