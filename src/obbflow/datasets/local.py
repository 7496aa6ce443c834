"""The base of our catalog entries: a local file or folder, with or without versions."""

from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from kedro.io import AbstractVersionedDataset, DatasetError, Version

Saved = TypeVar("Saved")
Loaded = TypeVar("Loaded")


class LocalDataset(AbstractVersionedDataset[Saved, Loaded]):
    """A file or folder on a local disk; a subclass says how it is loaded and saved."""

    def __init__(
        self,
        *,
        filepath: str,
        version: Version | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Remember where the data lies.

        Args:
            filepath: Local path; with versions, the folder that holds them.
            version: Version to load and save, None for no versions.
            metadata: Not used here; Kedro-Viz reads its layer.
        """
        super().__init__(filepath=PurePosixPath(filepath), version=version)
        self.metadata = metadata

    @property
    def load_path(self) -> Path:
        """Where the version to be loaded lies.

        Raises:
            DatasetError: If no version was saved so far.
        """
        return Path(self._get_load_path())

    @property
    def save_path(self) -> Path:
        """Where the present version is to be saved."""
        return Path(self._get_save_path())

    def _exists(self) -> bool:
        try:
            return self.load_path.exists()
        except DatasetError:  # no version was saved so far
            return False

    def _describe(self) -> dict[str, Any]:
        return {"filepath": str(self._filepath), "version": self._version}
