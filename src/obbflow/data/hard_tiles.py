"""How often training tiles are drawn: those that an earlier detector did badly on more often."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from obbflow.config import DatasetSection
from obbflow.data.formats.csv_rows import read_header, read_rows
from obbflow.data.formats.polygons import Fault
from obbflow.data.formats.source import parse_number
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
    if not path.is_file():
        raise DataError(f"{path}: no such file; correct dataset.tile_metrics_csv")
    header = read_header(path)
    found = ", ".join(header) or "none"
    id_column = next((name for name in _ID_COLUMNS if name in header), None)
    if id_column is None:
        raise DataError(f"{path}: no column {' or '.join(_ID_COLUMNS)} among {found}")
    if column not in header:
        raise DataError(
            f"{path}: no column {column!r} among {found}{did_you_mean(column, header)}; "
            "set dataset.hard_tile_metric_column"
        )

    def refuse(line: int, fault: Fault) -> None:
        raise DataError(f"{path}:{line}: {fault.message}; correct dataset.tile_metrics_csv")

    remedy = "correct dataset.tile_metrics_csv"
    scores: dict[str, float] = {}
    for line, (tile_id, text) in read_rows(path, (id_column, column), remedy=remedy, on_bad=refuse):
        score = math.nan if text.lower() in {"", "nan"} else parse_number(text)
        if tile_id in scores:
            raise DataError(
                f"{path}:{line}: tile {tile_id!r} stands there already; give each tile one row"
            )
        if score is None:
            raise DataError(f"{path}:{line}: {column} is {text!r}, not a number")
        scores[tile_id] = score
    return pd.Series(scores, dtype="float64")
