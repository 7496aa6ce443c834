"""What a reader of any label format gives: scenes, the lines of their labels, and issues.

A reader lists the scenes of a folder without opening images or label files. ``assemble`` then
probes all images, calls ``Scene.read`` for each and makes the tables of it.
"""

import math
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd

from obbflow.config import DatasetSection
from obbflow.data.images import ImageFacts
from obbflow.errors import DataError

SPLITS = ("train", "val")
_MANY = 10  # what is listed of a long list

Issue = dict[str, Any]
"""A row of ``data_issues``."""


class LabelFileError(DataError):
    """A label file that cannot be used as a whole.

    Where it holds the labels of one image only, that image is left out and the rest goes on.

    Attributes:
        reason: What is wrong, without the file's name.
        line: From 1; None when the whole file is meant.
    """

    def __init__(self, path: Path, reason: str, advice: str, line: int | None = None) -> None:
        place = path if line is None else f"{path}:{line}"
        super().__init__(f"{place}: {reason}; {advice}")
        self.reason = reason
        self.line = line


class LabelLine(NamedTuple):
    """One object as written.

    ``line`` counts from 1; where a format has no lines, it is the row or object number.
    ``corners`` are 8 finite coordinates, x1, y1, ..., x4, y4, px of the image as shown.
    """

    line: int
    corners: tuple[float, ...]
    class_name: str
    difficult: bool


class BadLine(NamedTuple):
    """A line that is no object: its number, the kind of fault and what is wrong."""

    line: int
    kind: str
    message: str


@dataclass(frozen=True)
class LabelFile:
    """What the labels of one image hold.

    ``gsd`` is in metres a px, NaN when they do not say; ``size`` the image's width and height by
    the labels, px, None when they do not say.
    """

    objects: list[LabelLine] = field(default_factory=list)
    bad_lines: list[BadLine] = field(default_factory=list)
    gsd: float = math.nan
    size: tuple[int, int] | None = None

    @property
    def is_normalised(self) -> bool:
        """Whether all coordinates are fractions of the image's size, none in px."""
        if not all(0 <= value <= 1 for item in self.objects for value in item.corners):
            return False
        return any(0 < value < 1 for item in self.objects for value in item.corners)


@dataclass(frozen=True)
class Scene:
    """An image file and how to read its labels.

    Attributes:
        image_id: Unique and stable: split, path below the images folder, no ending; "train/P0001".
        image: The image file.
        split: "train" or "val"; None to let ``dataset.val_fraction`` decide.
        source: The label file as messages show it, posix; "" when there is none.
        read: Returns the labels, given the facts of the image; None when it has none, so that it
            is background. Raises ``LabelFileError`` when the whole file cannot be used.
        group: The scene that this image was cut from, named without split, so that it is the same
            in train and val; images of one group stay in one split. None: the image itself.
        is_tile: Whether it is a ready-made tile, trained on as it is.
    """

    image_id: str
    image: Path
    split: str | None
    source: str
    read: Callable[[ImageFacts], LabelFile] | None
    group: str | None = None
    is_tile: bool = False


Reader = Callable[[Path, DatasetSection, list[Issue]], list[Scene]]
"""(root, section ``dataset``, issues to append to) -> scenes in any order; none when no image.

``root`` is an absolute path of a folder that there is."""


@dataclass(frozen=True)
class DataTables:
    """The tables of a data set: ``images``, ``annotations`` as written, and reading ``issues``."""

    images: pd.DataFrame
    annotations: pd.DataFrame
    issues: pd.DataFrame


def make_issue(
    file: str,
    kind: str,
    message: str,
    action: str,
    *,
    line: int | None = None,
    image_id: str | None = None,
    severity: Literal["error", "warning", "info"] = "warning",
) -> Issue:
    """Return a row of ``data_issues``.

    Args:
        file: The file as messages show it, posix; see ``relative``.
        kind: One or two words with underscores: "broken_image".
        message: What is wrong, without the file's name, which stands before it.
        action: "dropped", "repaired", "kept", "left out".
        line: From 1; None when the whole file is meant.
        image_id: Of the image it is about, if there is one.
        severity: "error" for what strict mode stops at: something of the user's was lost, or
            makes scores worthless.
    """
    return {
        "file": file,
        "line": line,
        "image_id": image_id,
        "severity": severity,
        "kind": kind,
        "message": message,
        "action": action,
    }


def relative(root: Path | None, path: Path) -> str:
    """Return a file as messages and tables show it: below ``root`` relative, else absolute."""
    if root is not None and path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    return path.as_posix()


def compose(name: str) -> str:
    """Return a file name in composed Unicode (NFC): tools differ in how they write an é."""
    return unicodedata.normalize("NFC", name)


def read_text(path: Path) -> str:
    """Return the content of a text file, without a byte order mark.

    Raises:
        LabelFileError: If the file cannot be read or is not UTF-8.
    """
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 text ({error.reason} at byte {error.start})"
        raise LabelFileError(path, reason, "save it as UTF-8") from error


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        LabelFileError: If it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise LabelFileError(path, reason, "make it readable or remove it") from error


def clean_name(text: str) -> str:
    r"""Return a class name on one line, without half characters, which no table can hold.

    JSON and YAML may escape one half of a character; it becomes a question mark.

    Example:
        >>> clean_name(" storage\n tank\ud800")
        'storage tank?'
    """
    return " ".join(text.encode(errors="replace").decode().split())


def parse_number(text: str) -> float | None:
    """Return the number that a text is, None when it is none or not finite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def as_size(width: object, height: object) -> tuple[int, int] | None:
    """Return an image's size as labels state it, px; None unless both are whole numbers above 0.

    Example:
        >>> as_size(640, 512.0), as_size(0, 0), as_size("640", None)
        ((640, 512), None, None)
    """
    sides = [
        int(side)
        for side in (width, height)
        if isinstance(side, int | float) and 0 < side < math.inf and side == int(side)
    ]
    return (sides[0], sides[1]) if len(sides) == 2 else None


def shorten(names: Iterable[str]) -> str:
    """Return names with commas, of a long list the first ten.

    Example:
        >>> shorten(str(number) for number in range(12))
        '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more'
    """
    listed = list(names)
    more = f" and {len(listed) - _MANY:,} more" if len(listed) > _MANY else ""
    return ", ".join(listed[:_MANY]) + more
