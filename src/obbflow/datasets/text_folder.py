"""Catalog entries that hold a folder of text files."""

import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

from kedro.io import DatasetError, Version

from obbflow.datasets.local import LocalDataset


class TextFolderDataset(LocalDataset[dict[str, str], dict[str, str]]):
    """Saves and loads text files, UTF-8, as a dictionary of file name -> text.

    The folder is there whole or not at all. With ``archive`` it also holds a flat zip file of
    them, ready to be sent.

    Example of an entry::

        dota_task1:
          type: obbflow.datasets.TextFolderDataset
          filepath: data/07_model_output/dota_task1
          archive: dota_task1.zip
          versioned: true
    """

    def __init__(
        self,
        *,
        filepath: str,
        archive: str | None = None,
        version: Version | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Remember where the folder lies.

        Args:
            filepath: Local folder; with versions, the folder that holds them.
            archive: Name of the zip file in it, None for no such file.
            version: Version to load and save, None for one plain folder.
            metadata: Not used here; Kedro-Viz reads its layer.
        """
        super().__init__(filepath=filepath, version=version, metadata=metadata)
        self._archive = archive

    def load(self) -> dict[str, str]:
        """Return the text of every file but the archive, by name."""
        files = sorted(self.load_path.iterdir())
        return {
            path.name: path.read_text(encoding="utf-8")
            for path in files
            if path.name != self._archive
        }

    def save(self, data: dict[str, str]) -> None:
        """Write all files under another name first, then put the folder in its place.

        Raises:
            DatasetError: If a name is that of no file in this folder, or of the archive.
        """
        wrong = [
            name for name in data if Path(name).name != name or name in {"", "..", self._archive}
        ]
        if wrong:
            raise DatasetError(f"{', '.join(map(repr, wrong))}: no plain file name")
        target = self.save_path
        target.parent.mkdir(parents=True, exist_ok=True)
        # The dot keeps Kedro from taking it for a version.
        scratch = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            scratch.mkdir()
            for name, text in data.items():
                (scratch / name).write_text(text, encoding="utf-8")
            if self._archive:
                _pack(data, scratch / self._archive)
            _replace_folder(scratch, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _pack(files: dict[str, str], target: Path) -> None:
    """Write a flat zip file; equal files give equal bytes, as no time is kept."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)


def _replace_folder(source: Path, target: Path) -> None:
    """Put ``source`` in the place of ``target``, which may exist."""
    if not target.exists():
        source.rename(target)
        return
    former = target.with_name(f"{source.name}.former")
    target.rename(former)
    source.rename(target)
    shutil.rmtree(former)
