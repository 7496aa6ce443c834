"""The tiles of one split as (image, target) samples, and their ground truth as a table."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Generator, Tensor
from torch.utils.data import Dataset, get_worker_info

from obbflow.config import DatasetSection, PreprocessingSection
from obbflow.data.sampler import SampleKey, seeded_generator
from obbflow.data.transforms import EvalTransform
from obbflow.errors import DataError
from obbflow.structures import Target
from obbflow.tables import (
    GROUND_TRUTH,
    RBOX,
    TILE_ANNOTATIONS,
    TILE_INDEX,
    check_table,
    is_object,
    make_table,
)

logger = logging.getLogger(__name__)

Transform = Callable[[Tensor, Target, tuple[int, int], Generator], tuple[Tensor, Target]]

_SHOWN = 5  # missing files that a message names
_AGAIN = "Run the data pipeline again: kedro run --pipeline data"


class TileError(DataError):
    """A tile's file cannot be read, or is not what the tile index says.

    An error in a loading process reaches the training process with that process's traceback for
    its text, because torch builds it anew; the message proper comes last, and is what is kept.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message.rpartition(f"{type(self).__name__}: ")[2].rstrip())


class TileDataset(Dataset[tuple[Tensor, Target]]):
    """Tiles of one split; a sample is asked for as ``(index, epoch)``.

    A sample depends on (seed, epoch, index) alone. Rows of ``tile_annotations`` with ``ignore``
    become ignore regions, those with ``lookalike`` look-alikes, which are not in the ground truth:
    a detection on one is false. Rows of a class that is not in ``class_map`` (objects in
    validation only: the map holds every class of the training objects) are in neither targets nor
    ground truth, as the detector cannot know them; the numbers of such objects are in
    `unmapped_classes` and in one warning.

    Args:
        tile_index: Table ``tile_index``, all splits.
        tile_annotations: Table ``tile_annotations``.
        class_map: Class name -> id, 1..C.
        transform: What a tile goes through, e.g. `TrainTransform`.
        split: "train" or "val".
        dataset: ``filter_empty_gt`` (training only) and the caps on the number of samples, which
            count after it.
        seed: The experiment's seed.
        cache_bytes: Decoded tiles are kept up to this size, in all loading processes together;
            0: none.

    Raises:
        DataError: If tile files are missing, or a training split holds no tile.
    """

    def __init__(
        self,
        tile_index: pd.DataFrame,
        tile_annotations: pd.DataFrame,
        class_map: Mapping[str, int],
        transform: Transform,
        *,
        split: Literal["train", "val"],
        dataset: DatasetSection,
        seed: int,
        cache_bytes: int = 1 << 30,
    ) -> None:
        check_table(tile_index, TILE_INDEX, "tile_index")
        check_table(tile_annotations, TILE_ANNOTATIONS, "tile_annotations")
        self.class_map = dict(class_map)
        self.transform = transform
        self.seed = seed
        self.cache_bytes = cache_bytes
        self._cache: dict[int, tuple[Tensor, tuple[int, int]]] = {}
        self._cached_bytes = 0

        in_split = tile_index[tile_index["split"] == split]
        lookalike = tile_annotations["lookalike"]
        known = tile_annotations["class_name"].isin(list(self.class_map)) & ~lookalike
        tiles = _choose_tiles(in_split, tile_annotations[known], split, dataset)
        _check_files(tiles["path"])
        self.tile_ids: list[str] = tiles["tile_id"].tolist()
        self._paths: list[str] = tiles["path"].tolist()
        self._sizes: list[tuple[int, int]] = list(
            zip(tiles["height"].tolist(), tiles["width"].tolist(), strict=True)
        )
        in_tiles = tile_annotations["tile_id"].isin(self.tile_ids)
        self._annotations = tile_annotations[in_tiles & known]
        self._targets = _make_targets(
            self.tile_ids, tile_annotations[in_tiles & (known | lookalike)], self.class_map
        )
        objects = tile_annotations[in_tiles & ~known & is_object(tile_annotations)]
        self.unmapped_classes: dict[str, int] = {
            str(name): int(count) for name, count in objects["class_name"].value_counts().items()
        }
        if self.unmapped_classes:
            logger.warning(
                "The %s tiles hold objects of classes that no training object has; they are left "
                "out: %s",
                split,
                ", ".join(f"{name} ({count})" for name, count in self.unmapped_classes.items()),
            )

    def __len__(self) -> int:
        return len(self.tile_ids)

    def __getitem__(self, key: SampleKey) -> tuple[Tensor, Target]:
        """Return one sample.

        Args:
            key: Index of the tile, and the epoch, which matters to random transforms only.

        Returns:
            The image as the transform leaves it, (3, H, W) float32, and the target in its pixels,
            with ``index`` and ``scale``.

        Raises:
            TileError: If the tile's file cannot be read.
        """
        index, epoch = key
        image, canvas_size = self._load(index)
        target: Target = {
            **self._targets[index],
            "scale": torch.ones(2),
            "index": torch.tensor(index),
        }
        generator = seeded_generator(self.seed, epoch, index)
        return self.transform(image, target, canvas_size, generator)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a loading process, which fills a cache of its own."""
        return {**self.__dict__, "_cache": {}, "_cached_bytes": 0}

    @property
    def class_names(self) -> list[str]:
        """Class names in the order of their ids, 1..C."""
        return sorted(self.class_map, key=self.class_map.__getitem__)

    @property
    def ground_truth(self) -> pd.DataFrame:
        """All boxes as table `GROUND_TRUTH`, in the tiles' own px.

        ``image_id`` is the tile's id; ``difficult`` marks the ignore regions, and nothing else:
        a difficult object that the data pipeline kept as an object counts.
        """
        rows = self._annotations.rename(columns={"tile_id": "image_id"})
        return make_table(rows.assign(difficult=rows["ignore"]), GROUND_TRUTH).reset_index(
            drop=True
        )

    def tile_image(self, index: int) -> Tensor:
        """Return the tile as written, (3, H, W) uint8 RGB, without its padding."""
        return self._load(index)[0].clone()

    def _load(self, index: int) -> tuple[Tensor, tuple[int, int]]:
        """Return the tile's content, (3, H, W) uint8, and height and width of its file."""
        if index in self._cache:
            return self._cache[index]
        loaded = _read_tile(self._paths[index], self._sizes[index])
        size_bytes = loaded[0].nbytes
        worker = get_worker_info()
        limit = self.cache_bytes // worker.num_workers if worker else self.cache_bytes
        if self._cached_bytes + size_bytes <= limit:
            self._cache[index] = loaded
            self._cached_bytes += size_bytes
        return loaded


def validation_tiles(
    tile_index: pd.DataFrame,
    tile_annotations: pd.DataFrame,
    class_map: Mapping[str, int],
    dataset: DatasetSection,
    preprocessing: PreprocessingSection,
    *,
    seed: int,
) -> TileDataset:
    """Return the tiles that are scored and shown; each is looked at once, so none is kept.

    Args:
        tile_index: Table ``tile_index``, all splits.
        tile_annotations: Table ``tile_annotations``.
        class_map: Class name -> id, 1..C.
        dataset: The cap on the number of validation samples.
        preprocessing: Resizing and normalisation.
        seed: The experiment's seed.
    """
    return TileDataset(
        tile_index,
        tile_annotations,
        class_map,
        EvalTransform(preprocessing),
        split="val",
        dataset=dataset,
        seed=seed,
        cache_bytes=0,
    )


def _choose_tiles(
    tiles: pd.DataFrame, annotations: pd.DataFrame, split: str, dataset: DatasetSection
) -> pd.DataFrame:
    """Return the tiles to use, in the order of the table."""
    cap = dataset.max_val_samples
    if split == "train":
        cap = dataset.max_train_samples
        if dataset.filter_empty_gt:
            with_objects = annotations.loc[is_object(annotations), "tile_id"]
            tiles = tiles[tiles["tile_id"].isin(with_objects)]
        if tiles.empty:
            raise DataError(
                "tile_index: no training tile is left. The train split needs at least one image"
                + (" with an object (dataset.filter_empty_gt)" if dataset.filter_empty_gt else "")
                + f". Check dataset.data_root ({dataset.data_root}) and the split."
            )
    if cap is None or cap >= len(tiles):
        return tiles
    if dataset.max_samples_shuffle_seed is None:
        return tiles.iloc[:cap]
    order = torch.randperm(len(tiles), generator=seeded_generator(dataset.max_samples_shuffle_seed))
    return tiles.iloc[sorted(order[:cap].tolist())]


def _check_files(paths: "pd.Series[str]") -> None:
    """Raise `DataError` naming tile files that do not exist."""
    missing = [path for path in paths if not Path(path).is_file()]
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise DataError(
            f"{len(missing)} of {len(paths)} tile files are missing: "
            f"{', '.join(missing[:_SHOWN])}{more}. {_AGAIN}"
        )


def _make_targets(
    tile_ids: list[str], annotations: pd.DataFrame, class_map: Mapping[str, int]
) -> list[Target]:
    """Return objects, ignore regions and look-alikes of each tile, in the tile's px."""
    rboxes = torch.tensor(annotations[list(RBOX)].to_numpy(dtype=np.float32))
    ids = annotations["class_name"].map(class_map).where(~annotations["lookalike"], 0)
    labels = torch.tensor(ids.to_numpy(dtype=np.int64))
    lookalike = annotations["lookalike"].to_numpy(dtype=bool)
    ignore = annotations["ignore"].to_numpy(dtype=bool)
    neither = ~(ignore | lookalike)
    rows_of_tile = annotations.groupby("tile_id", sort=False).indices
    targets = []
    for tile_id in tile_ids:
        rows = rows_of_tile.get(tile_id, np.empty(0, dtype=np.int64))
        objects, regions, lookalikes = (
            torch.from_numpy(rows[kind[rows]]) for kind in (neither, ignore, lookalike)
        )
        targets.append(
            Target(
                rboxes=rboxes[objects],
                labels=labels[objects],
                rboxes_ignore=rboxes[regions],
                labels_ignore=labels[regions],
                rboxes_lookalike=rboxes[lookalikes],
            )
        )
    return targets


def _read_tile(path: str, size: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
    """Return the top left ``size`` (height, width) of a file, (3, H, W) uint8 RGB, and its size."""
    try:
        with Image.open(path) as file:
            pixels = np.array(file.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's ways to say: broken
        raise TileError(f"{path}: the tile cannot be read ({error}). {_AGAIN}") from error
    height, width = size
    canvas_size = (pixels.shape[0], pixels.shape[1])
    if height > canvas_size[0] or width > canvas_size[1]:
        raise TileError(
            f"{path}: the tile is {canvas_size[1]} x {canvas_size[0]} px, but tile_index says that "
            f"it shows {width} x {height} px (width x height). {_AGAIN}"
        )
    content = torch.from_numpy(pixels[:height, :width]).permute(2, 0, 1).contiguous()
    return content, canvas_size
