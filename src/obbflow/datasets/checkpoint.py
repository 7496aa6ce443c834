"""Catalog entries that hold a torch checkpoint."""

import os
import shutil
from pathlib import Path
from typing import Any

from kedro.io import DatasetError

from obbflow.datasets.atomic import atomic_path
from obbflow.datasets.local import LocalDataset
from obbflow.errors import CheckpointError


class CheckpointDataset(LocalDataset["Path | dict[str, Any]", Path]):
    """Promotes a checkpoint file of a training run into the catalog, and loads its path.

    Saving a path makes a hard link, so a large file is not written a second time; on another file
    system it is copied. Saving a dictionary writes it with torch. Loading gives the path, because
    only the reader knows the device and which parts it needs.

    Example of an entry::

        best_checkpoint:
          type: obbflow.datasets.CheckpointDataset
          filepath: data/06_models/best_checkpoint.pt
          versioned: true
    """

    def load(self) -> Path:
        """Return the path of the checkpoint.

        Raises:
            DatasetError: If there is no such file; its cause is a ``CheckpointError``.
        """
        path = self.load_path
        if not path.is_file():
            raise CheckpointError(
                f"{path}: there is no such checkpoint; run the training pipeline first, or ask "
                "for a version that exists"
            )
        return path

    def save(self, data: Path | dict[str, Any]) -> None:
        """Link, copy or write ``data`` into place; readers never see half a file.

        Raises:
            DatasetError: If ``data`` is the path of no file.
        """
        if isinstance(data, str | os.PathLike) and not Path(data).is_file():
            raise DatasetError(f"there is no file {data} to keep as a version")
        with atomic_path(self.save_path) as scratch:
            if isinstance(data, str | os.PathLike):
                _link_or_copy(Path(data), scratch)
            else:
                _write(data, scratch)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)


def _write(state: dict[str, Any], target: Path) -> None:
    import torch  # only here: it takes seconds

    with target.open("wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())
