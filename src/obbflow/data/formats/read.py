"""Reading a data set of any format into its tables."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pandas as pd

from obbflow.config import DatasetSection
from obbflow.data.formats import airbus, coco, dota, fair1m, hrsc, yolo_obb
from obbflow.data.formats.assemble import assemble
from obbflow.data.formats.detect import describe_other_format
from obbflow.data.formats.dota_classes import compare_with_version
from obbflow.data.formats.source import DataTables, Issue, Reader, Scene
from obbflow.data.formats.tile_roots import find_tiles
from obbflow.data.strict import require_no_errors
from obbflow.errors import DataError

READERS: dict[str, Reader] = {
    "dota": dota.find_scenes,
    "synthetic": dota.find_scenes,
    "airbus_playground": airbus.find_scenes,
    "hrsc": hrsc.find_scenes,
    "fair1m": fair1m.find_scenes,
    "yolo_obb": yolo_obb.find_scenes,
    "coco": coco.find_scenes,
}
"""Value of ``dataset.format`` -> its reader."""


def read_data_set(root: Path | None, dataset: DatasetSection, seed: int) -> DataTables:
    """Return the images, objects and reading issues of a data set.

    Nothing is decoded: images give their header and the digest of their bytes. Bad lines, broken
    images and labels without an image are left out, each with a row in ``issues``; an image
    without labels counts as background.

    Args:
        root: The data set's folder, in ``dataset.format``; None for ready-made tiles alone.
        dataset: Section ``dataset``.
        seed: Of the choice of validation scenes, where the data set comes without a split.

    Returns:
        The tables, rows sorted by image_id; ``ignore`` is False everywhere.

    Raises:
        DataError: If a folder is missing or has no image, the labels are of another format, or a
            file cannot be used at all; see the readers.
    """
    issues: list[Issue] = []
    scenes: list[Scene] = []
    if root is not None:
        root = root.expanduser().resolve()
        _require_folder(root)
        with _clear_os_errors():
            scenes += READERS[dataset.format](root, dataset, issues)
        if not scenes:
            raise DataError(
                f"{root}: no image in it; images end in .png, .jpg, .tif, .bmp or .webp and lie in "
                "train/images/ or images/. Put them there, or set dataset.data_root to another "
                f"folder.{describe_other_format(root, dataset.format)}"
            )
    with _clear_os_errors():
        scenes += find_tiles(dataset, issues)
    data = assemble(scenes, issues, root, dataset, seed)
    if root is not None and data.annotations.empty:
        _refuse_other_format(root, dataset.format)
    if dataset.dota_version is not None:
        more = compare_with_version(data.annotations, dataset.dota_version)
        data = replace(data, issues=pd.concat([data.issues, more], ignore_index=True))
    if dataset.strict:
        require_no_errors(data.issues, dataset.place)
    return data


@contextmanager
def _clear_os_errors() -> Iterator[None]:
    """Make a folder or file that the system refuses to give a message for its user."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename}: cannot be read ({error.strerror}); make it readable or remove it"
        ) from error


def _refuse_other_format(root: Path, expected: str) -> None:
    """Raise if labels of another format explain why there is no object."""
    hint = describe_other_format(root, expected)
    if hint:
        raise DataError(f"{root}: no object could be read with dataset.format={expected}.{hint}")


def _require_folder(root: Path) -> None:
    if not root.is_dir():
        what = "it is a file" if root.exists() else "there is no such folder"
        raise DataError(
            f"{root}: {what}; set dataset.data_root or the environment variable "
            "OBBFLOW_DATA_ROOT to the folder of your data set"
        )
