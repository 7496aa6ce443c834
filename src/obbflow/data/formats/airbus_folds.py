"""The CSV pair of an Airbus Playground export: annotations, and folds that keep scenes whole."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from obbflow.data.formats import airbus_export
from obbflow.data.formats.airbus import list_images
from obbflow.data.formats.label_issues import describe_broken_label
from obbflow.data.formats.source import Issue, LabelFileError, LabelLine, make_issue, shorten
from obbflow.errors import DataError

_STEPS = 4  # an octave, within which groups are of like size
_IDS = ("tile_relpath", "dataset_id", "zone_id", "image_id", "tile_id")


def make_csv_pair(
    root: Path, n_folds: int, seed: int, difficult_tags: Collection[str], issues: list[Issue]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the annotations and the split of an export, as ``airbus_playground`` reads them.

    Args:
        root: The folder that holds <dataset>/samples and <dataset>/labels.
        n_folds: Number of folds; the column split holds 0 to ``n_folds`` - 1.
        seed: Another seed gives other folds.
        difficult_tags: Tags left out of the class that set the column difficult to 1.
        issues: Rows are added for labels without a tile, features that are no object and label
            files that cannot be used; the tiles of these are left out.

    Returns:
        Annotations and split, rows in order of tiles. All tiles of one image are in one fold.

    Raises:
        DataError: If there is no export, or there are fewer images than folds.
    """
    root = root.expanduser().resolve()
    tiles = [tile for tile in list_images(root) if airbus_export.is_export(tile)]
    labels = airbus_export.find_labels(root, tiles, difficult_tags, issues)
    if not labels:
        raise DataError(
            f"{root}: no export of Airbus Playground; tiles lie in "
            "<dataset>/samples/<zone>/<image>/<tile>.jpg and their labels in "
            "<dataset>/labels/<zone>/<tile>.json"
        )
    objects: dict[str, Sequence[LabelLine]] = dict.fromkeys(tiles, ())
    for tile, own in labels.items():
        try:
            content = airbus_export.read_file(root / own.source, difficult_tags)
        except LabelFileError as error:
            del objects[tile]
            issues.append(describe_broken_label(own.source, None, error))
            continue
        objects[tile] = content.objects
        issues += [
            make_issue(own.source, bad.kind, bad.message, "dropped", line=bad.line)
            for bad in content.bad_lines
        ]
    folds = choose_folds(count_by_group(objects), n_folds, seed)
    annotations = [
        {
            **_ids(tile),
            "dota_coords": " ".join(f"{number:.3f}" for number in item.corners),
            "class_name": item.class_name,
            "difficult": int(item.difficult),
        }
        for tile in objects
        for item in objects[tile]
    ]
    split = [{**_ids(tile), "split": folds[_group(tile)]} for tile in objects]
    columns = [*_IDS, "dota_coords", "class_name", "difficult"]
    return pd.DataFrame(annotations, columns=columns), pd.DataFrame(split)


def count_by_group(objects: Mapping[str, Sequence[LabelLine]]) -> dict[str, Counter[str]]:
    """Return for each image how many objects of each class and how many tiles ("") it has.

    Args:
        objects: Tile -> its objects.
    """
    counts: dict[str, Counter[str]] = {}
    for tile, items in objects.items():
        own = counts.setdefault(_group(tile), Counter())
        own[""] += 1
        own.update(item.class_name for item in items)
    return counts


def choose_folds(counts: Mapping[str, Counter[str]], n_folds: int, seed: int) -> dict[str, int]:
    """Return a fold for each group, so that all folds hold much the same.

    Groups are dealt from large to small, each to the fold that has least of what it holds. Every
    class weighs the same, however rare. The order of ``counts`` does not matter.

    Args:
        counts: Group -> number of whatever is to be balanced, by name.
        n_folds: Number of folds, at most as many as groups.
        seed: Of the order of groups of like size, and of folds that are equally full.

    Raises:
        DataError: If there are fewer groups than folds.
    """
    if len(counts) < n_folds:
        raise DataError(
            f"{len(counts)} images for {n_folds} folds ({shorten(sorted(counts))}); an image is "
            "never in two folds, so ask for fewer folds"
        )
    names = sorted({name for own in counts.values() for name in own})
    groups = sorted(counts)
    amounts = np.array([[counts[group][name] for name in names] for group in groups], dtype=float)
    amounts /= amounts.sum(axis=0)
    size = np.round(_STEPS * np.log2(amounts.sum(axis=1)))  # groups of like size are shuffled
    order = sorted(range(len(groups)), key=lambda row: (-size[row], _rank(groups[row], seed)))
    folds_in_order = sorted(range(n_folds), key=lambda fold: _rank(str(fold), seed))
    full = np.zeros((n_folds, len(names)))
    folds: dict[str, int] = {}
    for row in order:
        shared = np.round(full @ amounts[row], 12)  # equal is equal, in whatever order it was added
        fold = min(folds_in_order, key=lambda fold: (shared[fold], full[fold].sum()))
        full[fold] += amounts[row]
        folds[groups[row]] = fold
    return folds


def _rank(name: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{name}".encode()).digest()


def _group(tile: str) -> str:
    return airbus_export.name_group(tile) or tile


def _ids(tile: str) -> dict[str, str]:
    """Return the columns that name a tile: <dataset>/samples/<zone>/<image>/<tile>."""
    parts = PurePosixPath(tile).with_suffix("").parts
    at = parts.index(airbus_export.SAMPLES)
    zone, *image = parts[at + 1 : -1] or ("",)
    values = (tile, "/".join(parts[:at]), zone, "/".join(image), parts[-1])
    return dict(zip(_IDS, values, strict=True))
