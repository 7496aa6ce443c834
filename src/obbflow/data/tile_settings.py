"""The settings that tiles were cut with travel in ``tile_index``, and are compared later."""

import logging
from typing import Any

import pandas as pd

from obbflow.config import DatasetSection, TilingSection

logger = logging.getLogger(__name__)

_KEY = "tiled_with"
_OF_DATASET = {"overlap", "bands", "stretch_percentiles"}


def keep_settings(
    tile_index: pd.DataFrame, dataset: DatasetSection, tiling: TilingSection, *, is_stretched: bool
) -> pd.DataFrame:
    """Return ``tile_index`` with the settings it was made with, which parquet files keep.

    Args:
        tile_index: Table ``tile_index``.
        dataset: Section ``dataset``.
        tiling: Section ``tiling``.
        is_stretched: Whether an image has more than 8 bits: else the percentiles change no tile.
    """
    settings = _settings(dataset, tiling)
    if not is_stretched:
        del settings["dataset.stretch_percentiles"]
    kept = tile_index.copy(deep=False)
    kept.attrs[_KEY] = settings
    return kept


def list_other_settings(
    tile_index: pd.DataFrame, dataset: DatasetSection, tiling: TilingSection
) -> list[str]:
    """Return what is set differently now, one line a key; none when that is not known.

    Args:
        tile_index: Table ``tile_index``.
        dataset: Section ``dataset`` now.
        tiling: Section ``tiling`` now.
    """
    then = tile_index.attrs.get(_KEY, {})
    now = _settings(dataset, tiling)
    # A key that one side lacks changed no tile there, or was not kept yet.
    return [
        f"{key}: {now[key]} now, the tiles were cut with {then[key]}"
        for key in sorted(then.keys() & now.keys())
        if then[key] != now[key]
    ]


def warn_about_other_settings(
    tile_index: pd.DataFrame, dataset: DatasetSection, tiling: TilingSection
) -> None:
    """Warn when the tiles were cut with other settings than those that hold now."""
    others = list_other_settings(tile_index, dataset, tiling)
    if others:
        logger.warning(
            "The tiles were cut with other settings than those that hold now; run the data "
            "pipeline (kedro run --pipelines data) to cut them again, or set them back:\n  %s",
            "\n  ".join(others),
        )


def _settings(dataset: DatasetSection, tiling: TilingSection) -> dict[str, Any]:
    sections = {
        "dataset": dataset.model_dump(mode="json", include=_OF_DATASET),
        "tiling": tiling.of_tiles(),
    }
    return {
        f"{section}.{key}": value
        for section, values in sections.items()
        for key, value in values.items()
    }
