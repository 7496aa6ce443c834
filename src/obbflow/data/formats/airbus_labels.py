"""What both kinds of Airbus labels share: the labels of a tile, and what its tags mean."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from obbflow.data.formats.polygons import Fault
from obbflow.data.formats.source import LabelFile, clean_name
from obbflow.data.images import ImageFacts


@dataclass(frozen=True)
class TileLabels:
    """Where the labels of one tile are.

    ``source`` is the file as messages show it; ``line`` the first line of this tile, None when the
    file is this tile's alone; ``count`` says how much it holds: "3 rows". ``read`` is that of
    ``Scene``.
    """

    source: str
    line: int | None
    count: str
    read: Callable[[ImageFacts], LabelFile]


def read_tags(tags: Iterable[str], difficult_tags: Collection[str]) -> tuple[str, bool] | Fault:
    """Return the class that tags name, and whether one of them means difficult.

    What is left without the difficult tags is the class, several joined by ", ". A difficult tag
    that stands alone is the class as well.

    Args:
        tags: As written; blanks at the ends and empty ones are left out.
        difficult_tags: As in ``dataset.difficult_tags``; upper and lower case count.

    Example:
        >>> read_tags(["Aircraft", "Partially Hidden"], ["Partially Hidden"])
        ('Aircraft', True)
        >>> read_tags(["Aircraft", "Partially Hidden"], [])
        ('Aircraft, Partially Hidden', False)
    """
    names = [name for name in map(clean_name, tags) if name]
    if not names:
        return Fault("bad_class", "no class")
    kept = [name for name in names if name not in difficult_tags]
    return ", ".join(kept or names), len(kept) < len(names)
