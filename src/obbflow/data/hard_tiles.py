"""How often training tiles are drawn: those that an earlier detector did badly on more often."""

import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from obbflow.config import DatasetSection
from obbflow.errors import DataError, did_you_mean

logger = logging.getLogger(__name__)

_ID_COLUMNS = ("tile_id", "image_id")  # the first that is there counts


def weigh_tiles(tile_ids: Sequence[str], dataset: DatasetSection) -> Tensor | None:
    """Return how often each training tile is drawn compared with the others.

    A tile is hard if its score in ``tile_metrics_csv`` is below ``hard_tile_threshold``. Tiles
    without a score (absent, or an empty cell: no object to find) weigh as others do.

    Args:
        tile_ids: The training tiles, at least one.
        dataset: ``tile_metrics_csv`` and the ``hard_tile_*`` keys.

    Returns:
        (len(tile_ids),) float64: ``hard_tile_oversample_factor`` for hard tiles, 1 for others;
        None without a ``tile_metrics_csv``.

    Raises:
        DataError: If the file cannot be read, lacks a column, holds a tile twice or a score that
            is no number, or scores none of the tiles.
    """
    path = dataset.tile_metrics_csv
    if path is None:
        return None
    column = dataset.hard_tile_metric_column
    scores = _read_scores(path, column)
    own = scores.reindex(list(tile_ids))
    n_unknown = sum(tile_id not in scores.index for tile_id in tile_ids)
    if n_unknown == len(tile_ids):
        raise DataError(
            f"{path}: none of its {len(scores):,} tiles is one of the {len(tile_ids):,} training "
            f"tiles (such as {tile_ids[0]!r}); dataset.tile_metrics_csv takes scores of training "
            "tiles, by tile_id of tile_index"
        )
    is_hard = (own < dataset.hard_tile_threshold).to_numpy()
    logger.info(
        "Hard tiles: %s of %s training tiles have %s below %g and are drawn %g times as often; "
        "%s other tiles in %s",
        f"{is_hard.sum():,}",
        f"{len(tile_ids):,}",
        column,
        dataset.hard_tile_threshold,
        dataset.hard_tile_oversample_factor,
        f"{len(scores) - (len(tile_ids) - n_unknown):,}",
        path,
    )
    if n_unknown:
        logger.warning(
            "%s: no row for %s of %s training tiles; they count as not hard",
            path,
            f"{n_unknown:,}",
            f"{len(tile_ids):,}",
        )
    factor = dataset.hard_tile_oversample_factor
    return torch.tensor([factor if hard else 1.0 for hard in is_hard], dtype=torch.float64)


def _read_scores(path: Path, column: str) -> "pd.Series[float]":
    """Return the score of each tile of a CSV file, NaN where the cell is empty."""
    try:
        table = pd.read_csv(path, dtype=str, encoding="utf-8-sig", keep_default_na=False)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise DataError(
            f"{path}: cannot be read as CSV ({error}); correct dataset.tile_metrics_csv"
        ) from error
    found = ", ".join(table.columns)
    id_column = next((name for name in _ID_COLUMNS if name in table.columns), None)
    if id_column is None:
        raise DataError(f"{path}: no column {' or '.join(_ID_COLUMNS)} among {found}")
    if column not in table.columns:
        raise DataError(
            f"{path}: no column {column!r} among {found}{did_you_mean(column, table.columns)}; "
            "set dataset.hard_tile_metric_column"
        )
    twice = table.index[table[id_column].duplicated()]
    if len(twice):
        raise DataError(
            f"{path}:{twice[0] + 2}: tile {table[id_column][twice[0]]!r} stands there already; "
            "give each tile one row"
        )
    scores = pd.to_numeric(table[column].replace("", "nan"), errors="coerce")
    wrong = table.index[scores.isna() & ~table[column].str.lower().isin(["", "nan"])]
    if len(wrong):
        raise DataError(
            f"{path}:{wrong[0] + 2}: {column} is {table[column][wrong[0]]!r}, not a number"
        )
    return pd.Series(scores.to_numpy("float64"), index=table[id_column])
