"""What each split holds: objects by class, difficulty and size. Look-alikes are none."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import shapely

from obbflow.tables import CORNERS

SIZES = {"small": 0.0, "medium": 32.0**2, "large": 96.0**2}
"""Size -> its smallest area, px; the bounds are those of COCO."""


def count_by_split(images: pd.DataFrame, annotations: pd.DataFrame) -> pd.DataFrame:
    """Return the objects of each class and split, counted in the images as they are.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations`` after all checks.

    Returns:
        See `count_objects_of`.
    """
    annotations = annotations[~annotations["lookalike"]]
    splits = images.set_index("image_id")["split"]
    corners = annotations[list(CORNERS)].to_numpy(np.float64, copy=True).reshape(-1, 4, 2)
    return count_objects_of(
        annotations.assign(
            split=annotations["image_id"].map(splits),
            area=shapely.area(shapely.polygons(corners)),
        )
    )


def count_on_tiles(tile_index: pd.DataFrame, tile_annotations: pd.DataFrame) -> pd.DataFrame:
    """Return the different objects of each class and split that tiles show.

    An object on several tiles counts once, as on the tile that shows most of it.

    Args:
        tile_index: Table ``tile_index``.
        tile_annotations: Table ``tile_annotations``.

    Returns:
        See `count_objects_of`; areas are those on the tiles.
    """
    tile_annotations = tile_annotations[~tile_annotations["lookalike"]]
    splits = tile_index.set_index("tile_id")["split"]
    shown = tile_annotations.assign(
        split=tile_annotations["tile_id"].map(splits),
        area=tile_annotations["w"] * tile_annotations["h"],
    ).sort_values(["ignore", "iof"], ascending=[True, False], kind="stable")
    return count_objects_of(shown.drop_duplicates(["split", "object_id"]))


def count_objects_of(objects: pd.DataFrame) -> pd.DataFrame:
    """Return a row a split and class.

    Args:
        objects: Columns split, class_name, difficult, ignore and area (px), a row an object.

    Returns:
        Columns split, class_name; n_objects without ignore regions, and of these n_difficult,
        n_small, n_medium and n_large (see `SIZES`); n_ignored. Train first, then by class.
    """
    counts = ~objects["ignore"]
    number = np.searchsorted(list(SIZES.values()), objects["area"], side="right") - 1
    columns = {
        "n_objects": counts,
        "n_difficult": counts & objects["difficult"],
        **{f"n_{size}": counts & (number == place) for place, size in enumerate(SIZES)},
        "n_ignored": objects["ignore"],
    }
    keys = [objects["split"].rename("split"), objects["class_name"].rename("class_name")]
    return pd.DataFrame(columns).astype("int64").groupby(keys, sort=True).sum().reset_index()


def describe_counts(counts: pd.DataFrame) -> str:
    """Return the totals of each split in one line.

    Args:
        counts: As `count_objects_of` returns it.

    Example:
        >>> describe_counts(count_objects_of(pd.DataFrame(
        ...     {"split": ["val"], "class_name": ["ship"], "difficult": [True],
        ...      "ignore": [False], "area": [50.0]}
        ... )))
        'val: 1 objects of 1 classes, 1 small, 0 medium, 0 large, 1 difficult, 0 ignored'
    """
    return "; ".join(_describe_splits(counts)) or "none"


def _describe_splits(counts: pd.DataFrame) -> Iterator[str]:
    for split, rows in counts.groupby("split", sort=True):
        total = rows.sum(numeric_only=True)
        parts = (f"{total[f'n_{name}']:,} {name}" for name in (*SIZES, "difficult", "ignored"))
        n_classes = int(rows["n_objects"].gt(0).sum())
        yield (
            f"{split}: {total['n_objects']:,} objects of {n_classes} classes, {', '.join(parts)}"
        )
