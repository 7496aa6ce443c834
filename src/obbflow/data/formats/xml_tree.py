"""Label files in XML: elements that know their line, and the numbers in them."""

import xml.etree.ElementTree as ET
from collections.abc import Collection, Sequence
from pathlib import Path
from xml.parsers import expat

from obbflow.data.formats.polygons import Fault
from obbflow.data.formats.rotated import RBox, make_rbox, shorten_value
from obbflow.data.formats.source import LabelFileError, as_size, parse_number, read_bytes

_REMEDY = "correct or replace the file"


class Element(ET.Element):
    """An element of a label file, and the line from 1 that its tag is on."""

    line = 1


def read_xml(path: Path, tags: Collection[str]) -> Element:
    """Return the outermost element of an XML file.

    Label files need no document type, so one with a ``<!DOCTYPE>`` is refused: entities, which it
    may define, can grow beyond all memory or name other files.

    Args:
        path: The file.
        tags: What the outermost element may be.

    Raises:
        LabelFileError: If the file cannot be read, is no whole XML, or something else.
    """
    content = read_bytes(path)
    parser = expat.ParserCreate()

    def make(tag: str, attributes: dict[str, str]) -> Element:
        element = Element(tag, attributes)
        element.line = parser.CurrentLineNumber
        return element

    def refuse(*_: object) -> None:
        raise ValueError("a label file has no <!DOCTYPE>; remove it")

    builder = ET.TreeBuilder(element_factory=make)
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(content, True)
        root = builder.close()
    except expat.ExpatError as error:
        reason = f"no whole XML ({expat.ErrorString(error.code)})"
        raise LabelFileError(path, reason, _REMEDY, error.lineno) from error
    except (ValueError, LookupError) as error:  # a document type, an unknown encoding
        reason, line = f"no usable XML ({error})", parser.CurrentLineNumber
        raise LabelFileError(path, reason, _REMEDY, line) from error
    assert isinstance(root, Element)
    if root.tag not in tags:
        wanted = " or ".join(f"<{tag}>" for tag in tags)
        reason = f"the outermost element is <{shorten_value(root.tag)[1:-1]}>, not {wanted}"
        raise LabelFileError(path, reason, _REMEDY, root.line)
    return root


def read_text_of(element: ET.Element, tag: str) -> str:
    """Return the words within the child ``tag``, "" without it."""
    return " ".join((element.findtext(tag) or "").split())


def read_size(element: ET.Element, width: str, height: str) -> tuple[int, int] | None:
    """Return the image's width and height as written in two children, px, None without both."""
    size = parse_number(read_text_of(element, width)), parse_number(read_text_of(element, height))
    return as_size(*size)


def read_rbox(element: ET.Element, tags: Sequence[str]) -> RBox | Fault:
    """Return (cx, cy, w, h, angle) as written in five children, or what is wrong with them."""
    values = []
    for tag in tags:
        text = read_text_of(element, tag)
        number = parse_number(text)
        if number is None:
            what = f"{shorten_value(text)}, which is no number" if text else "missing"
            return Fault("not_a_number", f"<{tag}> is {what}")
        values.append(number)
    cx, cy, w, h, angle = values
    return make_rbox(cx, cy, w, h, angle)


def read_flag(element: ET.Element, tag: str) -> bool | Fault:
    """Return whether the child ``tag`` is 1 (2 is DOTA's "very"), False without it."""
    text = read_text_of(element, tag)
    if text in {"", "0", "1", "2"}:
        return text in {"1", "2"}
    return Fault("bad_difficulty", f"<{tag}> is {shorten_value(text)}; it must be 0 or 1")
