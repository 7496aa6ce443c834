"""FAIR1M: an XML file an image, four corners and a class an object.

An ``object`` holds ``points`` of ``point`` "x,y" in px, the first one repeated at the end, and
``possibleresult/name``. Image and label are joined by name: train/part1/images/1.tif and
train/part1/labelXml/1.xml, or any other tree; folders called train, val and validation are the
split.
"""

import re
from pathlib import Path

from obbflow.config import DatasetSection
from obbflow.data.formats.pairing import find_pairs
from obbflow.data.formats.polygons import Fault, corners_of, read_ring
from obbflow.data.formats.rotated import shorten_value
from obbflow.data.formats.source import BadLine, Issue, LabelFile, LabelLine, Scene, parse_number
from obbflow.data.formats.xml_tree import (
    Element,
    read_size,
    read_text_of,
    read_xml,
)
from obbflow.data.images import ImageFacts

_DROPPED = re.compile(r"images|labelXmls?|labels|annotations|xml", re.IGNORECASE)


def find_scenes(root: Path, _: DatasetSection, issues: list[Issue]) -> list[Scene]:
    """Return the scenes of a data set in FAIR1M's format.

    Args:
        root: The data set's folder.
        issues: Rows are added for labels without an image.

    Raises:
        DataError: If two files claim one name.
    """
    return find_pairs(root, ".xml", _DROPPED, _read, issues)


def read_label_file(path: Path) -> LabelFile:
    """Return the objects of one XML file; the line of an object is that of its tag.

    Raises:
        LabelFileError: If it is no such file.
    """
    root = read_xml(path, ("annotation",))
    result = LabelFile(size=read_size(root, "size/width", "size/height"))
    for element in root.iter("object"):
        assert isinstance(element, Element)
        parsed = _read_object(element)
        if isinstance(parsed, Fault):
            result.bad_lines.append(BadLine(element.line, *parsed))
        else:
            class_name, corners = parsed
            result.objects.append(LabelLine(element.line, corners, class_name, False))
    return result


def _read(path: Path, _: ImageFacts) -> LabelFile:
    return read_label_file(path)


def _read_object(element: Element) -> tuple[str, tuple[float, ...]] | Fault:
    """Return class and corners of an object, or what is wrong with it."""
    unit = read_text_of(element, "coordinate")
    if unit not in {"", "pixel"}:
        return Fault("not_in_px", f"<coordinate> is {shorten_value(unit)}; only pixel is read")
    class_name = read_text_of(element, "possibleresult/name")
    if not class_name:
        return Fault("bad_class", "<possibleresult><name> is missing")
    points: list[list[float]] = []
    for point in element.iterfind("points/point"):
        numbers = [parse_number(text.strip()) for text in (point.text or "").split(",")]
        if len(numbers) != 2 or None in numbers:
            return Fault("not_a_number", f"<point> is {shorten_value(point.text)}, not x,y")
        points.append([number for number in numbers if number is not None])
    ring = read_ring(points)
    return ring if isinstance(ring, Fault) else (class_name, corners_of([ring]))
