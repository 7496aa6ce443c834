"""The split file of Airbus data: a row a tile, with a fold number or the words train and val."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from obbflow.config import DatasetSection
from obbflow.data.formats.airbus_csv import TILE, check_tile_path
from obbflow.data.formats.airbus_export import name_group
from obbflow.data.formats.csv_rows import read_header, read_rows
from obbflow.data.formats.pairing import SPLIT_NAMES
from obbflow.data.formats.polygons import Fault
from obbflow.data.formats.source import SPLITS, Issue, make_issue, relative, shorten
from obbflow.errors import DataError

_LONGEST = 40  # characters; Python refuses to read numbers of thousands of digits


class Tile(NamedTuple):
    """A tile of the data set: its split (None: to be chosen), scene and line of the split file."""

    split: str | None
    group: str | None
    line: int | None


def read_split(
    root: Path,
    path: Path,
    tiles_by_name: Callable[[], dict[str, str]],
    dataset: DatasetSection,
    issues: list[Issue],
) -> dict[str, Tile]:
    """Return the tiles that a split file lists, by their path below the data set's folder.

    Args:
        root: The data set's folder.
        path: A CSV file with the columns tile_relpath and split, or image_id and split as made
            for the Airbus aircraft sample. dataset_id, zone_id and image_id beside tile_relpath
            name the scene of a tile, which its path does otherwise.
        tiles_by_name: Gives the images below ``root`` by file name, for the second kind.
        dataset: ``val_split_id`` names the fold that is "val"; all others are "train".
        issues: Rows are added for rows that are left out.

    Raises:
        DataError: If columns are missing, the column split has both folds and words, or no tile
            has the fold of ``val_split_id``.
    """
    source = relative(root, path)

    def leave_out(line: int, fault: Fault) -> None:
        issues.append(make_issue(source, *fault, "dropped", line=line, severity="error"))

    is_by_name = TILE not in read_header(path)
    key = "image_id" if is_by_name else TILE
    names = tiles_by_name() if is_by_name else {}
    scene = () if is_by_name else ("dataset_id", "zone_id", "image_id")
    labels: dict[str, str] = {}
    places: dict[str, tuple[int, str | None]] = {}
    remedy = "set dataset.split_file to another file"
    for line, (tile, label, *ids) in read_rows(
        path, (key, "split"), scene, remedy=remedy, on_bad=leave_out
    ):
        name = check_tile_path(tile)
        if isinstance(name, Fault):
            leave_out(line, name)
            continue
        name, label = names.get(name, name), _read_label(label)
        if not label:
            message = f"{name} has no split; it must be a fold number, train or val"
            leave_out(line, Fault("bad_split", message))
        elif name in labels:
            same = "again" if label == labels[name] else f"in {label} and in {labels[name]}"
            message = f"{name} is listed {same}; the row above counts"
            leave_out(line, Fault("listed_twice", message))
        else:
            labels[name] = label
            group = "/".join(filter(None, ids)) if ids and ids[-1] else name_group(name)
            places[name] = line, group
    splits = _choose(path, set(labels.values()), dataset)
    tiles = {}
    for name, label in labels.items():
        line, group = places[name]
        if label in splits:
            tiles[name] = Tile(splits[label], group, line)
        else:
            message = f"{name} is in split {label!r}, which is neither train nor val"
            leave_out(line, Fault("bad_split", message))
    return tiles


def _read_label(text: str) -> str:
    """Return a fold as "3", also of "3.0", and a word in lower case; "" for what can be neither."""
    if len(text) > _LONGEST:
        return ""
    whole, _, zeros = text.partition(".")
    if whole.isdecimal() and not zeros.strip("0"):
        return str(int(whole))
    return SPLIT_NAMES.get(text.lower(), text.lower())


def _choose(path: Path, labels: set[str], dataset: DatasetSection) -> dict[str, str]:
    """Return the split of each value of the column, values that are neither left out."""
    folds = {int(label): label for label in labels if label.isdecimal()}
    words = sorted(labels - set(folds.values()))
    if folds and words:
        raise DataError(
            f"{path}: column split has fold numbers ({shorten(map(str, sorted(folds)))}) and words "
            f"({shorten(words)}); use one of both"
        )
    if folds and dataset.val_split_id not in folds:
        raise DataError(
            f"{path}: no tile is in fold {dataset.val_split_id}; the folds are "
            f"{shorten(map(str, sorted(folds)))}. Set dataset.val_split_id to one of them"
        )
    by_fold = {label: SPLITS[fold == dataset.val_split_id] for fold, label in folds.items()}
    return by_fold | {word: word for word in words if word in SPLITS}
