"""The lines of one DOTA label file.

A line is ``x1 y1 x2 y2 x3 y3 x4 y4 class difficult``, fields divided by blanks, tabs or commas. The
difficulty may be missing, and a class may hold blanks: it is all that stands between the eight
numbers and a last 0, 1 or 2. Header lines are known by their content wherever they stand:
``imagesource:``, ``gsd:``, and column names that start with ``x1 y1``.
"""

import functools
import math
import re
from pathlib import Path
from typing import NamedTuple

from obbflow.data.formats.polygons import LARGEST
from obbflow.data.formats.source import BadLine, LabelFile, LabelLine, read_text

_N_COORDINATES = 8
# Each way to write a number matches in one way only, or a long line of digits would take for ever.
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_BETWEEN = r"(?:\s*,\s*|\s+)"
_IS_NUMBER = re.compile(_NUMBER)
_IS_BETWEEN = re.compile(_BETWEEN)
_IS_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_OBJECT = re.compile(
    _BETWEEN.join([f"({_NUMBER})"] * _N_COORDINATES) + f"{_BETWEEN}(.+)", re.DOTALL
)
_META = re.compile(r"(imagesource|gsd)\s*:\s*(.*)", re.IGNORECASE | re.DOTALL)
_COLUMN_NAMES = re.compile(rf"x1{_BETWEEN}y1\b", re.IGNORECASE)
_LINE_END = re.compile(r"\r\n|\r|\n")
_EDGE = ", \t"
_LINE = "a line is x1 y1 x2 y2 x3 y3 x4 y4 class difficult"


class _Fault(NamedTuple):
    """What is wrong with the end of a line."""

    kind: str
    message: str


def read_label_file(path: Path) -> LabelFile:
    """Return the objects, bad lines and ground sampling distance of a label file.

    Raises:
        LabelFileError: If the file is not UTF-8 text.
    """
    return parse_label_text(read_text(path))


def parse_label_text(text: str) -> LabelFile:
    r"""Return what the text of a label file says; see the module for the format.

    Example:
        >>> parse_label_text("gsd:0.5\n1 1 9 1 9 5 1 5 storage tank 1").objects[0].class_name
        'storage tank'
    """
    result, gsd = LabelFile(), math.nan
    for number, padded in enumerate(_LINE_END.split(text), start=1):
        line = padded.strip()
        match = _OBJECT.fullmatch(line)
        if match:
            parsed = _make_object(number, match)
        elif not line or _COLUMN_NAMES.match(line):
            continue
        elif meta := _META.match(line):
            gsd = _parse_gsd(meta[2]) if meta[1].lower() == "gsd" else gsd
            continue
        else:
            parsed = _explain(number, _IS_BETWEEN.split(line))
        if isinstance(parsed, LabelLine):
            result.objects.append(parsed)
        else:
            result.bad_lines.append(parsed)
    return LabelFile(result.objects, result.bad_lines, gsd)


def _parse_gsd(text: str) -> float:
    """Return metres a px, NaN for "null", "None" and other words."""
    value = float(text) if _IS_NUMBER.fullmatch(text.strip()) else math.nan
    return value if 0 < value < math.inf else math.nan


def _make_object(number: int, match: re.Match[str]) -> LabelLine | BadLine:
    """Return the object of a line that starts with eight numbers."""
    *coordinates, rest = match.groups()
    corners = tuple(map(float, coordinates))
    if max(corners) > LARGEST or min(corners) < -LARGEST:
        return BadLine(number, "not_finite", "a coordinate is no place in an image")
    end = _parse_end(rest)
    if isinstance(end, _Fault):
        return BadLine(number, end.kind, end.message)
    return LabelLine(number, corners, *end)


@functools.lru_cache(maxsize=4096)  # a data set has few classes and many lines
def _parse_end(text: str) -> tuple[str, bool] | _Fault:
    """Return class and whether it is difficult, from what follows the corners."""
    name, difficulty = text.rstrip(_EDGE), "0"
    *before, last = _IS_BETWEEN.split(name)
    if before and _IS_NUMBER.fullmatch(last):
        name, difficulty = name[: -len(last)].rstrip(_EDGE), last
    if float(difficulty) not in (0, 1, 2):
        return _Fault("bad_difficulty", f"the difficulty is {difficulty!r}; it must be 0, 1 or 2")
    class_name = " ".join(name.split())
    if not class_name:
        return _Fault("field_count", f"8 numbers and no class; {_LINE}")
    are_numbers = [_IS_NUMBER.fullmatch(word) is not None for word in _IS_BETWEEN.split(class_name)]
    if len(are_numbers) > 1 and all(are_numbers[:2]):
        return _Fault(
            "bad_class",
            f"more than 8 numbers before the class; {_LINE}, with points as decimal signs",
        )
    if "." in class_name and all(are_numbers):
        message = f"the class is the number {class_name}; the class stands behind the corners"
        return _Fault("bad_class", message)
    return class_name, float(difficulty) > 0


def _explain(number: int, fields: list[str]) -> BadLine:
    """Return what is wrong with a line that does not start with eight numbers and a class."""
    for position, text in enumerate(fields[:_N_COORDINATES], start=1):
        if _IS_NUMBER.fullmatch(text):
            continue
        if _IS_NOT_FINITE.fullmatch(text):
            return BadLine(number, "not_finite", f"coordinate {position} is {text!r}")
        if len(fields) <= _N_COORDINATES + 1:
            break  # a field is missing: say so, instead of calling the class a wrong number
        message = f"coordinate {position} is {text!r}, which is no number"
        return BadLine(number, "not_a_number", message)
    return BadLine(
        number,
        "field_count",
        f"{len(fields)} fields that do not start with 8 numbers and a class; {_LINE}",
    )
