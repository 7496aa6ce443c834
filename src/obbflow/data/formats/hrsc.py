"""HRSC2016: an XML file an image, rotated boxes of ships.

A box is ``mbox_cx mbox_cy mbox_w mbox_h`` in px and ``mbox_ang`` in radians, which turns the w
axis clockwise on the screen. Image and label are joined by name, in the layout of the download
(FullDataSet/AllImages, FullDataSet/Annotations, ImageSets/train.txt, ...), of its copies
(Train/AllImages, Train/Annotations, Test/...), or in any other tree, where folders called train
and val are the split.

Files of roLabelImg (``robndbox``: cx, cy, w, h, angle, by the same convention) are read as well.
"""

import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from obbflow.config import DatasetSection
from obbflow.data.formats.pairing import find_pairs, split_of
from obbflow.data.formats.polygons import Fault
from obbflow.data.formats.rotated import RBox, corners_of_rboxes, shorten_value
from obbflow.data.formats.source import (
    BadLine,
    Issue,
    LabelFile,
    LabelLine,
    Scene,
    parse_number,
    read_text,
)
from obbflow.data.formats.xml_tree import (
    Element,
    read_flag,
    read_rbox,
    read_size,
    read_text_of,
    read_xml,
)
from obbflow.data.images import ImageFacts

SHIP_TYPES = {
    1: "ship", 2: "aircraft carrier", 3: "warcraft", 4: "merchant ship", 5: "Nimitz",
    6: "Enterprise", 7: "Arleigh Burke", 8: "WhidbeyIsland", 9: "Perry", 10: "Sanantonio",
    11: "Ticonderoga", 12: "Kitty Hawk", 13: "Kuznetsov", 14: "Abukuma", 15: "Austen",
    16: "Tarawa", 17: "Blue Ridge", 18: "Container", 19: "OXo|--)", 20: "Car carrier([]==[])",
    22: "Hovercraft", 24: "yacht", 25: "CntShip(_|.--.--|_]=", 26: "Cruise", 27: "submarine",
    28: "lute", 29: "Medical", 30: "Car carrier(======|", 31: "Ford-class", 32: "Midway-class",
    33: "Invincible-class",
}  # fmt: skip
"""Last digits of ``Class_ID`` -> class, as HRSC2016's own list names them."""

_FIRST_CLASS = 100_000_000
_DROPPED = re.compile(
    r"FullDataSet|AllImages|Annotations|images|labels|JPEGImages|xml", re.IGNORECASE
)
_NO_LABELS = ("segmentations", "landmask", "domainmask", "imagesets", "sysdata.xml")
"""Folders and files of the download that are neither photos nor labels."""
_ROOTS = ("HRSC_Image", "annotation")
_HRSC_BOX = ("mbox_cx", "mbox_cy", "mbox_w", "mbox_h", "mbox_ang")
_ROLABELIMG_BOX = ("cx", "cy", "w", "h", "angle")


def find_scenes(root: Path, dataset: DatasetSection, issues: list[Issue]) -> list[Scene]:
    """Return the scenes of a data set in HRSC2016's format.

    Args:
        root: The data set's folder.
        dataset: ``hrsc_classes`` counts.
        issues: Rows are added for files that belong to nothing.

    Raises:
        DataError: If two files claim one name, or a list in ImageSets is no text.
    """
    splits = _read_image_sets(root)

    def choose_split(name: str) -> str | None:
        return splits.get(name.rsplit("/", 1)[-1], "test") if splits else split_of(name)

    read = partial(_read, use_types=dataset.hrsc_classes == "type")
    return find_pairs(
        root, ".xml", _DROPPED, read, issues, skip=_NO_LABELS, split_of_name=choose_split
    )


def read_label_file(path: Path, *, use_types: bool = False) -> LabelFile:
    """Return the objects of one XML file; the line of an object is that of its tag.

    Args:
        path: A file of HRSC2016 or roLabelImg.
        use_types: Name HRSC2016's ships by type, see ``SHIP_TYPES``; False: all are "ship".

    Raises:
        LabelFileError: If it is no such file.
    """
    root = read_xml(path, _ROOTS)
    result = LabelFile(gsd=_read_gsd(root), size=_read_size(root))
    found: list[tuple[int, str, bool]] = []
    rboxes: list[RBox] = []
    for element in _find_objects(root):
        parsed = _read_object(element, use_types=use_types)
        if isinstance(parsed, Fault):
            result.bad_lines.append(BadLine(element.line, *parsed))
            continue
        class_name, is_difficult, rbox = parsed
        found.append((element.line, class_name, is_difficult))
        rboxes.append(rbox)
    result.objects.extend(
        LabelLine(line, corners, class_name, is_difficult)
        for (line, class_name, is_difficult), corners in zip(
            found, corners_of_rboxes(rboxes), strict=True
        )
    )
    return result


def _read(path: Path, _: ImageFacts, *, use_types: bool) -> LabelFile:
    return read_label_file(path, use_types=use_types)


def _find_objects(root: Element) -> Iterator[Element]:
    for element in root.iter():
        if isinstance(element, Element) and element.tag in {"HRSC_Object", "object"}:
            yield element


def _read_object(element: Element, *, use_types: bool) -> tuple[str, bool, RBox] | Fault:
    """Return class, difficulty and box of an object, or what is wrong with it."""
    is_difficult = read_flag(element, "difficult")
    if isinstance(is_difficult, Fault):
        return is_difficult
    if element.tag == "HRSC_Object":
        class_name = _read_ship_class(element) if use_types else "ship"
        rbox = read_rbox(element, _HRSC_BOX)
    else:
        class_name = read_text_of(element, "name") or Fault("bad_class", "<name> is missing")
        box = element.find("robndbox")
        if box is None:
            return Fault("upright_box", "no <robndbox>: a box without an angle")
        rbox = read_rbox(box, _ROLABELIMG_BOX)
    if isinstance(class_name, Fault):
        return class_name
    return rbox if isinstance(rbox, Fault) else (class_name, is_difficult, rbox)


def _read_ship_class(element: Element) -> str | Fault:
    text = read_text_of(element, "Class_ID")
    name = SHIP_TYPES.get(int(text) - _FIRST_CLASS) if re.fullmatch(r"[0-9]{9}", text) else None
    return name or Fault(
        "bad_class", f"<Class_ID> is {shorten_value(text)}, which HRSC2016 does not list"
    )


def _read_gsd(root: Element) -> float:
    """Return metres a px, NaN where the file does not say."""
    value = parse_number(read_text_of(root, "Img_Resolution"))
    return value if value is not None and value > 0 else math.nan


def _read_size(root: Element) -> tuple[int, int] | None:
    if root.tag == "HRSC_Image":
        return read_size(root, "Img_SizeWidth", "Img_SizeHeight")
    return read_size(root, "size/width", "size/height")


def _read_image_sets(root: Path) -> dict[str, str | None]:
    """Return image -> split from the lists of the download; empty without lists.

    None stands for an image that only trainval.txt names.
    """
    splits: dict[str, str | None] = {}
    for folder in (root / "ImageSets", root / "FullDataSet" / "ImageSets"):
        for name, split in (
            ("trainval", None),
            ("train", "train"),
            ("val", "val"),
            ("test", "test"),
        ):
            path = folder / f"{name}.txt"
            if path.is_file():
                splits.update(dict.fromkeys(read_text(path).split(), split))
    return splits
