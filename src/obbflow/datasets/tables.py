"""Catalog entries that hold a table, or plain values as JSON."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from kedro.io import Version
from kedro_datasets._typing import JSONPreview, TablePreview

from obbflow.datasets.atomic import atomic_path
from obbflow.datasets.local import LocalDataset
from obbflow.errors import DataError


class ParquetDataset(LocalDataset[pd.DataFrame, pd.DataFrame]):
    """Saves and loads a table as parquet; readers see the old or the new one, never half of it.

    Example of an entry::

        images:
          type: obbflow.datasets.ParquetDataset
          filepath: data/02_intermediate/images.parquet
    """

    def load(self) -> pd.DataFrame:
        """Return the table.

        Raises:
            DatasetError: If the file is damaged; its cause is a ``DataError``.
        """
        content = self.load_path.read_bytes()
        with _damage_named(self.load_path):
            return pd.read_parquet(io.BytesIO(content))

    def save(self, data: pd.DataFrame) -> None:
        """Write the table."""
        with atomic_path(self.save_path) as scratch:
            data.to_parquet(scratch)

    def preview(self, nrows: int = 5) -> TablePreview:
        """Return the first rows, for Kedro-Viz."""
        return _first_rows(self.load(), nrows)


class CSVDataset(LocalDataset[pd.DataFrame, pd.DataFrame]):
    """Saves and loads a table as CSV; readers see the old or the new one, never half of it.

    Example of an entry::

        class_weights:
          type: obbflow.datasets.CSVDataset
          filepath: data/04_feature/class_weights.csv
          load_args: {dtype: {class_name: str}}
          versioned: true
    """

    def __init__(
        self,
        *,
        filepath: str,
        load_args: dict[str, Any] | None = None,
        version: Version | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Remember where the table lies.

        Args:
            filepath: Local path; with versions, the folder that holds them.
            load_args: Of ``pandas.read_csv``.
            version: Version to load and save, None for one plain file.
            metadata: Not used here; Kedro-Viz reads its layer.
        """
        super().__init__(filepath=filepath, version=version, metadata=metadata)
        self._load_args = dict(load_args or {})

    def load(self) -> pd.DataFrame:
        """Return the table.

        Raises:
            DatasetError: If the file is damaged; its cause is a ``DataError``.
        """
        content = self.load_path.read_bytes()
        with _damage_named(self.load_path):
            return pd.read_csv(io.BytesIO(content), **self._load_args)

    def save(self, data: pd.DataFrame) -> None:
        """Write the table, without its index."""
        with atomic_path(self.save_path) as scratch:
            data.to_csv(scratch, index=False)

    def preview(self, nrows: int = 5) -> TablePreview:
        """Return the first rows, for Kedro-Viz."""
        return _first_rows(self.load(), nrows)


class JSONDataset(LocalDataset[Any, Any]):
    """Saves and loads plain values as JSON; readers see the old or the new ones, never half.

    Example of an entry::

        class_map:
          type: obbflow.datasets.JSONDataset
          filepath: data/04_feature/class_map.json
          versioned: true
    """

    def load(self) -> Any:  # noqa: ANN401 - what JSON can hold
        """Return the values.

        Raises:
            DatasetError: If the file is damaged; its cause is a ``DataError``.
        """
        content = self.load_path.read_bytes()
        with _damage_named(self.load_path):
            return json.loads(content)

    def save(self, data: Any) -> None:  # noqa: ANN401 - what JSON can hold
        """Write the values."""
        with atomic_path(self.save_path) as scratch:
            scratch.write_text(json.dumps(data, indent=2), encoding="utf-8")

    def preview(self) -> JSONPreview:
        """Return the text of the file, for Kedro-Viz."""
        return JSONPreview(self.load_path.read_text(encoding="utf-8"))


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Say which file has contents that cannot be understood, and what to do."""
    try:
        yield
    except (ValueError, OSError) as error:  # pyarrow says either
        raise DataError(
            f"{path}: the file is damaged ({error}). Write it again with the pipeline that makes "
            "it: for tiles and labels, kedro run --pipelines data."
        ) from error


def _first_rows(table: pd.DataFrame, nrows: int) -> TablePreview:
    return TablePreview(table.head(nrows).to_dict(orient="split"))
