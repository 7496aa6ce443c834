"""Images whose pixels turn out to be damaged when they are cut: left out, or a reason to stop."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from obbflow.data.formats.source import make_issue, relative
from obbflow.errors import DataError
from obbflow.tables import DATA_ISSUES, make_table

_SHOWN = 10

Damage = Mapping[str, DataError]
"""image_id -> why its tiles could not be cut."""


def require_usable_rest(tile_index: pd.DataFrame, damaged: Damage, *, strict: bool) -> None:
    """Raise if damaged images are a reason to stop.

    Args:
        tile_index: Table ``tile_index``, also of the damaged images.
        damaged: What is wrong with these.
        strict: ``dataset.strict``: any damaged image is one.

    Raises:
        DataError: Naming the first damaged images, if ``strict`` is set or no training tile shows
            an object without them.
    """
    if not damaged:
        return
    errors = sorted(map(str, damaged.values()))
    more = [f"and {len(errors) - _SHOWN:,} more"] if len(errors) > _SHOWN else []
    message = "\n".join([*errors[:_SHOWN], *more])
    if strict:
        raise DataError(message)
    rest = tile_index[~tile_index["image_id"].isin(damaged)]
    if not (rest["split"].eq("train") & rest["n_objects"].gt(0)).any():
        raise DataError(
            f"{message}\nWithout these images no training tile shows an object, so there is no "
            "class to learn."
        )


def describe_damage(damaged: Damage, images: pd.DataFrame, root: Path | None) -> pd.DataFrame:
    """Return a row of ``data_issues`` for each damaged image, in the order of ``images``.

    Args:
        damaged: What is wrong with these.
        images: Table ``images``.
        root: Files below it are named relative to it, as readers do; None: all are absolute.
    """
    root = root.expanduser().resolve() if root is not None else None
    found = images[images["image_id"].isin(damaged)]
    rows = [
        make_issue(
            relative(root, Path(path)),
            "broken_image",
            f"broken image: {str(damaged[image_id]).removeprefix(f'{path}: ')}",
            "dropped",
            image_id=image_id,
            severity="error",
        )
        for image_id, path in zip(found["image_id"], found["path"], strict=True)
    ]
    return make_table(rows, DATA_ISSUES)
