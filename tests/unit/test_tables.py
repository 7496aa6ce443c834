import numpy as np
import pandas as pd
import pytest

from obbflow import tables
from obbflow.errors import DataError
from obbflow.tables import ANNOTATIONS, TILE_INDEX, TileIndexValidator, check_table, make_table

SCHEMAS = {
    name: value
    for name, value in vars(tables).items()
    if name.isupper() and isinstance(value, dict) and name not in {"CORNERS", "RBOX"}
}
TILE = {
    "tile_id": "P1__320__0___0",
    "image_id": "P1",
    "split": "train",
    "x": 0,
    "y": 64,
    "width": 320,
    "height": 300,
    "path": "/tiles/P1.png",
    "n_objects": 3,
    "scale": 1.0,
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_empty_table_has_all_columns_in_their_types(name):
    table = make_table([], SCHEMAS[name])

    assert list(table.columns) == list(SCHEMAS[name])
    assert check_table(table, SCHEMAS[name], name) is table


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_table_survives_parquet(name, tmp_path):
    table = make_table([], SCHEMAS[name])

    table.to_parquet(tmp_path / "table.parquet")

    loaded = pd.read_parquet(tmp_path / "table.parquet")
    assert check_table(loaded, SCHEMAS[name], name) is loaded


def test_rows_are_put_into_the_order_and_types_of_the_schema():
    table = make_table([dict(reversed(TILE.items()))], TILE_INDEX)

    assert list(table.columns) == list(TILE_INDEX)
    assert table.loc[0].to_dict() == TILE
    assert table["y"].dtype == np.int64


def test_a_missing_column_is_named():
    table = make_table([TILE], TILE_INDEX).drop(columns=["split", "path"])

    with pytest.raises(ValueError, match="table tile_index lacks the columns split, path"):
        check_table(table, TILE_INDEX, "tile_index")


def test_a_column_of_another_type_is_named_with_both_types():
    table = make_table([TILE], TILE_INDEX).astype({"x": "float64"})

    with pytest.raises(ValueError, match="x is float64, not int64"):
        check_table(table, TILE_INDEX, "tile_index")


def test_further_columns_are_allowed():
    table = make_table([TILE], TILE_INDEX).assign(sharpness=0.5)

    assert "sharpness" in check_table(table, TILE_INDEX, "tile_index")


def test_a_validator_names_its_table():
    with pytest.raises(DataError, match=r"TileIndex lacks the columns n_objects: .* kedro run"):
        TileIndexValidator().validate(make_table([TILE], TILE_INDEX).drop(columns="n_objects"))


def test_ignore_regions_and_lookalikes_are_no_objects():
    table = pd.DataFrame({"ignore": [False, True, False], "lookalike": [False, False, True]})

    assert tables.is_object(table).tolist() == [True, False, False]


def test_corners_are_eight_numbers_in_cyclic_order():
    corners = [column for column in ANNOTATIONS if column[0] in "xy"]

    assert corners == ["x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4"]
