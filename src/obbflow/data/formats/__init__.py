"""Label formats: readers that give scenes, and what makes the tables of them."""

from obbflow.data.formats.read import READERS, read_data_set
from obbflow.data.formats.source import DataTables

__all__ = ["READERS", "DataTables", "read_data_set"]
