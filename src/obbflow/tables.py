"""Columns, types and meaning of every table in the catalog, and the check that they hold."""

from typing import Any, ClassVar

import pandas as pd

from obbflow.errors import DataError

# Column -> pandas dtype. "string" columns are stored as UTF-8; floats are px or radians.
IMAGES = {
    "image_id": "string",  # path below data_root without images/ and ending: "train/P0001"
    "path": "string",  # absolute
    "split": "string",  # train or val
    "width": "int64",  # px, as shown (EXIF orientation applied)
    "height": "int64",
    "bands": "int64",
    "dtype": "string",  # of one sample, as numpy names it
    "sha256": "string",  # of the file's bytes
    "gsd": "float64",  # metres a px by label file or georeference, NaN when not known
    "group": "string",  # the scene it was cut from, image_id for a whole one: never in two splits
    "is_tile": "bool",  # a ready-made tile, trained on as it is
}
CORNERS = {f"{axis}{corner}": "float64" for corner in range(1, 5) for axis in "xy"}
ANNOTATIONS = {
    "image_id": "string",
    "object_id": "int64",  # unique in the table
    "class_name": "string",  # after map_labels
    **CORNERS,  # px, as written in the label, in cyclic order
    "difficult": "bool",
    "ignore": "bool",  # an ignore region, no object
    "lookalike": "bool",  # of a class that is never one: background; not ignored at the same time
    "source_file": "string",
    "source_line": "int64",  # from 1, header lines included
}
DATA_ISSUES = {
    "file": "string",
    "line": "Int64",  # missing when the whole file is meant
    "image_id": "string",
    "severity": "string",  # error, warning or info
    "kind": "string",
    "message": "string",
    "action": "string",  # dropped, repaired, kept, ...
}
TILE_INDEX = {
    "tile_id": "string",
    "image_id": "string",
    "split": "string",
    "x": "int64",  # of the tile's top left corner, px of the image resized by scale
    "y": "int64",
    "width": "int64",  # of the part that shows the image; the rest is padding
    "height": "int64",
    "path": "string",  # absolute; the image's own file for a ready-made tile
    "n_objects": "int64",  # ignore regions and look-alikes not counted
    "scale": "float64",  # the image was resized to round(scale * its sides) before it was cut
}
RBOX = dict.fromkeys(("cx", "cy", "w", "h", "angle"), "float64")
TILE_ANNOTATIONS = {
    "tile_id": "string",
    "class_name": "string",
    **RBOX,  # px in the tile, le90
    "difficult": "bool",
    "ignore": "bool",
    "lookalike": "bool",
    "iof": "float64",  # share of the object's area inside the tile
    "object_id": "int64",  # of annotations: overlapping tiles hold the same object
}
CLASS_WEIGHTS = {
    "class_name": "string",
    "class_id": "int64",
    "count": "int64",
    "share": "float64",
    "raw": "float64",
    "normalised": "float64",
    "clipped": "float64",
    "override": "float64",  # NaN when there is none
    "weight": "float64",
}
DETECTIONS = {
    "image_id": "string",  # image_id or tile_id of what was looked at
    "class_name": "string",
    "score": "float64",
    **RBOX,
}
GROUND_TRUTH = {"image_id": "string", "class_name": "string", **RBOX, "difficult": "bool"}
CLASS_METRICS = {
    "class_name": "string",
    "n_gt": "int64",
    "n_det": "int64",
    "recall": "float64",  # NaN: not computable
    "precision": "float64",
    "f1": "float64",
    "ap50": "float64",
    "ap75": "float64",
    "ap50_95": "float64",
}


def make_table(rows: Any, columns: dict[str, str]) -> pd.DataFrame:  # noqa: ANN401
    """Return ``rows`` (anything DataFrame takes) with exactly ``columns``, in order and type."""
    frame = pd.DataFrame(rows, columns=list(columns))
    return frame.astype(columns)


def is_object(annotations: pd.DataFrame) -> "pd.Series[bool]":
    """Return which rows of ``annotations`` or ``tile_annotations`` are objects of a class.

    The others are ignore regions, which count neither way, and look-alikes, which are background.
    """
    return ~(annotations["ignore"] | annotations["lookalike"])


def check_table(table: pd.DataFrame, columns: dict[str, str], name: str) -> pd.DataFrame:
    """Return ``table`` if it has every one of ``columns`` in its type.

    Raises:
        ValueError: Naming the missing columns, or the columns of another type.
    """
    if missing := _find_missing(table, columns):
        raise ValueError(f"table {name} lacks the columns {', '.join(missing)}")
    wrong = [
        f"{column} is {table[column].dtype}, not {dtype}"
        for column, dtype in columns.items()
        if not _same_type(table[column].dtype, dtype)
    ]
    if wrong:
        raise ValueError(f"table {name}: {'; '.join(wrong)}")
    return table


def _find_missing(table: pd.DataFrame, columns: dict[str, str]) -> list[str]:
    return [column for column in columns if column not in table.columns]


def _same_type(actual: Any, expected: str) -> bool:  # noqa: ANN401 - numpy's or pandas' dtype
    if expected == "string":
        return bool(pd.api.types.is_string_dtype(actual))
    return bool(pd.api.types.pandas_dtype(expected) == actual)


class TableValidator:
    """Base of the catalog's validators: one subclass a schema, run on load and save."""

    columns: ClassVar[dict[str, str]]

    def validate(self, data: pd.DataFrame) -> pd.DataFrame:
        """Return ``data`` if it fits the schema.

        Raises:
            DataError: If columns are missing: an earlier version of the project wrote the file.
            ValueError: If columns are of another type.
        """
        name = type(self).__name__.removesuffix("Validator")
        if missing := _find_missing(data, self.columns):
            raise DataError(
                f"table {name} lacks the columns {', '.join(missing)}: another version of obbflow "
                "wrote it. Run the pipeline that writes it again; for images, labels and tiles: "
                "kedro run --pipelines data"
            )
        return check_table(data, self.columns, name)


class ImagesValidator(TableValidator):
    """Checks ``images``."""

    columns = IMAGES


class AnnotationsValidator(TableValidator):
    """Checks ``annotations``."""

    columns = ANNOTATIONS


class TileIndexValidator(TableValidator):
    """Checks ``tile_index``."""

    columns = TILE_INDEX


class TileAnnotationsValidator(TableValidator):
    """Checks ``tile_annotations``."""

    columns = TILE_ANNOTATIONS


class DetectionsValidator(TableValidator):
    """Checks ``detections``."""

    columns = DETECTIONS
