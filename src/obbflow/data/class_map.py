"""Class names and their ids, from what the training tiles hold."""

import logging

import pandas as pd

from obbflow.data.class_rules import no_object_on_tiles
from obbflow.tables import is_object

logger = logging.getLogger(__name__)


def count_objects(
    tile_index: pd.DataFrame, tile_annotations: pd.DataFrame, split: str
) -> pd.Series:
    """Return how many different objects of each class the tiles of a split show.

    Args:
        tile_index: Table ``tile_index``.
        tile_annotations: Table ``tile_annotations``; ignore regions and look-alikes are not
            counted, and an object on several overlapping tiles is one.
        split: "train" or "val".

    Returns:
        Number of objects by class name, names sorted; classes without any are absent.
    """
    tiles = tile_index.loc[tile_index["split"] == split, "tile_id"]
    counted = tile_annotations["tile_id"].isin(tiles) & is_object(tile_annotations)
    objects = tile_annotations[counted].drop_duplicates("object_id")
    counts = objects["class_name"].value_counts().sort_index()
    return pd.Series(counts.to_numpy("int64"), index=counts.index.astype(str), name="count")


def map_classes(
    tile_index: pd.DataFrame, tile_annotations: pd.DataFrame, where: str
) -> dict[str, int]:
    """Return the classes to be trained: names sorted, ids 1..C; 0 is the background.

    A class that only validation has is named in a warning, with its count.

    Args:
        tile_index: Table ``tile_index``.
        tile_annotations: Table ``tile_annotations``.
        where: The data set's folder, for messages.

    Returns:
        Class name -> id.

    Raises:
        DataError: If no training tile holds an object.
    """
    train = count_objects(tile_index, tile_annotations, "train")
    val = count_objects(tile_index, tile_annotations, "val")
    if train.empty:
        tiles = int((tile_index["split"] == "train").sum())
        raise no_object_on_tiles(where, tiles)
    for name, count in val.items():
        if name not in train.index:
            logger.warning(
                "Class %r is only in validation (train 0, val %d): it is not trained and has no "
                "AP; move a scene with it to train, or list it in dataset.ignore_labels",
                name,
                count,
            )
    return {str(name): number for number, name in enumerate(train.index, start=1)}
