"""A data set of one format as a folder of another one."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from obbflow.config import DatasetSection, fill_sections
from obbflow.data.formats.read import read_data_set
from obbflow.data.formats.source import make_issue
from obbflow.data.formats.writers import WRITERS
from obbflow.data.progress import track
from obbflow.errors import DataError
from obbflow.tables import DATA_ISSUES, make_table

ISSUES_FILE = "data_issues.csv"
"""What was dropped, repaired or looked suspicious, in the new folder."""

_SEED = 0  # of the choice of validation scenes, where the source has no split


class Conversion(NamedTuple):
    """What a conversion has written."""

    n_train: int
    n_val: int
    n_objects: int
    n_issues: int


def convert_data_set(
    source: Path,
    target: Path,
    source_format: str,
    target_format: str,
    *,
    link_images: bool = False,
    keys: Mapping[str, Any] | None = None,
) -> Conversion:
    """Write a data set in another format; ``target`` is there whole at the end, or not at all.

    Images keep their bytes. What the reader found wrong is in target/data_issues.csv. Where the
    source has no split, a fifth of the scenes goes to val (``dataset.val_fraction``).

    Args:
        source: Folder of the data set.
        target: Folder to be made; it must not exist, or be empty, and lie outside ``source``.
        source_format: As ``dataset.format`` names it.
        target_format: "dota", "yolo_obb" or "coco".
        link_images: Make symbolic links to the images instead of copies.
        keys: More keys of section ``dataset`` that the reader needs.

    Raises:
        DataError: If the folders are not as above, or the source cannot be read or written so.
        ConfigError: If ``keys`` do not hold.
    """
    source, target = source.expanduser().resolve(), target.expanduser().resolve()
    _require_free(source, target)
    values = {**(keys or {}), "data_root": str(source), "format": source_format}
    dataset = DatasetSection(**fill_sections({"dataset": values})["dataset"])
    data = read_data_set(source, dataset, _SEED)
    if data.annotations.empty:
        raise DataError(f"{source}: no object in its labels, so there is nothing to convert")
    issues = pd.concat([data.issues, _find_losses(data.annotations, target_format)])
    with _whole_folder(target) as folder:
        places = WRITERS[target_format](data.images, data.annotations, folder)
        images = data.images[["image_id", "path"]].itertuples(index=False)
        for image_id, path in track(images, len(data.images), "Writing images"):
            places[image_id].parent.mkdir(parents=True, exist_ok=True)
            if link_images:
                places[image_id].symlink_to(path)
            else:
                shutil.copyfile(path, places[image_id])
        issues.to_csv(folder / ISSUES_FILE, index=False)
    n_val = int(data.images["split"].eq("val").sum())
    return Conversion(len(data.images) - n_val, n_val, len(data.annotations), len(issues))


def _require_free(source: Path, target: Path) -> None:
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise DataError(f"{target}: exists and is no empty folder; name a new one")
    if target.is_relative_to(source):
        raise DataError(f"{target}: lies within {source}, which is read; name a folder outside it")


def _find_losses(annotations: pd.DataFrame, target_format: str) -> pd.DataFrame:
    """Return an issue for what the new format cannot hold."""
    count = int(annotations["difficult"].sum())
    rows = []
    if count and target_format == "yolo_obb":
        message = f"{count:,} difficult objects are ordinary ones there: YOLO has no difficulty"
        rows.append(make_issue(".", "difficulty_lost", message, "kept"))
    return make_table(rows, DATA_ISSUES)


@contextmanager
def _whole_folder(target: Path) -> Iterator[Path]:
    """Yield a scratch folder beside ``target`` that takes its place at the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    scratch.mkdir()
    try:
        yield scratch
        scratch.replace(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
