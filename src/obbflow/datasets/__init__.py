"""Kedro dataset classes of this project: one file format each, written atomically."""

from obbflow.datasets.checkpoint import CheckpointDataset
from obbflow.datasets.html import HtmlDataset
from obbflow.datasets.tables import CSVDataset, JSONDataset, ParquetDataset
from obbflow.datasets.text_folder import TextFolderDataset

__all__ = [
    "CSVDataset",
    "CheckpointDataset",
    "HtmlDataset",
    "JSONDataset",
    "ParquetDataset",
    "TextFolderDataset",
]
