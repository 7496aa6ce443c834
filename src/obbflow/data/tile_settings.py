"""The settings that tiles were cut with travel in ``tile_index``, and are compared later."""

import logging
from typing import Any

import pandas as pd

from obbflow.config import TilingSection

logger = logging.getLogger(__name__)

_KEY = "tiled_with"


def keep_settings(tile_index: pd.DataFrame, overlap: int, tiling: TilingSection) -> pd.DataFrame:
    """Return ``tile_index`` with the settings it was made with, which parquet files keep."""
    kept = tile_index.copy(deep=False)
    kept.attrs[_KEY] = _settings(overlap, tiling)
    return kept


def list_other_settings(tile_index: pd.DataFrame, overlap: int, tiling: TilingSection) -> list[str]:
    """Return what is set differently now, one line a key; none when that is not known.

    Args:
        tile_index: Table ``tile_index``.
        overlap: ``dataset.overlap`` now.
        tiling: Section ``tiling`` now.
    """
    then = tile_index.attrs.get(_KEY)
    if then is None:
        return []
    now = _settings(overlap, tiling)
    return [
        f"{key}: {now.get(key)} now, the tiles were cut with {then.get(key)}"
        for key in sorted(then.keys() | now.keys())
        if then.get(key) != now.get(key)
    ]


def warn_about_other_settings(
    tile_index: pd.DataFrame, overlap: int, tiling: TilingSection
) -> None:
    """Warn when the tiles were cut with other settings than those that hold now."""
    others = list_other_settings(tile_index, overlap, tiling)
    if others:
        logger.warning(
            "The tiles were cut with other settings than those that hold now; run the data "
            "pipeline (kedro run --pipelines data) to cut them again, or set them back:\n  %s",
            "\n  ".join(others),
        )


def _settings(overlap: int, tiling: TilingSection) -> dict[str, Any]:
    keys = {f"tiling.{name}": value for name, value in tiling.of_tiles().items()}
    return {"dataset.overlap": overlap, **keys}
