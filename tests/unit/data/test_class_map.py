import pandas as pd
import pytest

from obbflow.data.class_map import count_objects, map_classes
from obbflow.errors import DataError
from obbflow.tables import TILE_ANNOTATIONS, TILE_INDEX, make_table

NUMBERS = dict.fromkeys(("x", "y", "width", "height", "n_objects"), 0)
INDEX = make_table(
    [
        {"tile_id": "t0", "split": "train", **NUMBERS},
        {"tile_id": "t1", "split": "train", **NUMBERS},
        {"tile_id": "t2", "split": "val", **NUMBERS},
    ],
    TILE_INDEX,
)


def objects(*rows):
    """Return table ``tile_annotations`` from (tile_id, class_name, object_id, ignore)."""
    table = pd.DataFrame(rows, columns=["tile_id", "class_name", "object_id", "ignore"])
    flags = {"difficult": False, "lookalike": False, "iof": 1.0}
    return make_table(table.assign(**flags), TILE_ANNOTATIONS)


def test_object_on_two_tiles_is_one_and_ignore_regions_are_none():
    table = objects(
        ("t0", "ship", 5, False),
        ("t1", "ship", 5, False),
        ("t1", "ship", 6, True),
        ("t1", "car", 7, False),
        ("t2", "ship", 8, False),
    )
    assert count_objects(INDEX, table, "train").to_dict() == {"car": 1, "ship": 1}
    assert count_objects(INDEX, table, "val").to_dict() == {"ship": 1}


def test_object_that_is_cut_on_one_tile_and_whole_on_another_counts():
    table = objects(("t0", "ship", 5, True), ("t1", "ship", 5, False))
    assert count_objects(INDEX, table, "train").to_dict() == {"ship": 1}


def test_lookalikes_are_no_class():
    table = objects(("t0", "ship", 1, False), ("t0", "buoy", 2, False), ("t2", "buoy", 3, False))
    table["lookalike"] = table["class_name"] == "buoy"
    assert map_classes(INDEX, table, "here") == {"ship": 1}
    assert count_objects(INDEX, table, "val").empty


def test_names_are_sorted_and_numbered_from_1():
    table = objects(("t0", "ship", 1, False), ("t0", "car", 2, False), ("t1", "plane", 3, False))
    assert map_classes(INDEX, table, "here") == {"car": 1, "plane": 2, "ship": 3}


def test_class_that_only_validation_has_is_warned_about(caplog):
    table = objects(
        ("t0", "ship", 1, False), ("t2", "helicopter", 2, False), ("t2", "helicopter", 3, False)
    )
    assert map_classes(INDEX, table, "here") == {"ship": 1}
    (message,) = caplog.messages
    assert "Class 'helicopter' is only in validation (train 0, val 2)" in message


@pytest.mark.parametrize("rows", [[], [("t0", "ship", 1, True)], [("t2", "ship", 1, False)]])
def test_no_class_to_learn_is_an_error(rows):
    with pytest.raises(DataError, match="here: 2 training tiles and no object on any of them"):
        map_classes(INDEX, objects(*rows), "here")
