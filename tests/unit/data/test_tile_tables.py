import pytest

from obbflow.config import TilingSection
from obbflow.data.tile_tables import plan_tiles, require_tile_with_object, warn_about_lost
from obbflow.errors import DataError
from obbflow.tables import TILE_ANNOTATIONS, TILE_INDEX, check_table
from scenes import annotations_table, images_table, level_box


def plan(images, annotations, *, overlap=20, **tiling):
    section = TilingSection(**{"tile_size": 100, **tiling})
    return plan_tiles(images, annotations, overlap, section)


def test_object_in_the_overlap_is_on_both_tiles_as_one_object():
    images = images_table(("train/P1", "train", 180, 100))
    annotations = annotations_table(("train/P1", "ship", level_box(82, 40, 98, 50)))
    index, objects = plan(images, annotations)
    check_table(index, TILE_INDEX, "tile_index")
    check_table(objects, TILE_ANNOTATIONS, "tile_annotations")
    assert index["tile_id"].tolist() == ["train/P1__100__0___0", "train/P1__100__80___0"]
    assert index["n_objects"].tolist() == [1, 1]
    assert objects["cx"].tolist() == [90, 10]
    assert objects["cy"].tolist() == [45, 45]
    assert objects["object_id"].tolist() == [0, 0]
    assert objects["iof"].tolist() == [1, 1]


def test_small_image_gives_one_tile_with_its_own_size():
    index, _ = plan(images_table(("P1", "val", 60, 30)), annotations_table().iloc[:0])
    assert index[["x", "y", "width", "height", "n_objects"]].values.tolist() == [[0, 0, 60, 30, 0]]


def test_share_counts_only_what_the_image_shows():
    # Half of the object is beyond the border of a small image: its padding shows nothing.
    images = images_table(("P1", "train", 60, 30))
    _, objects = plan(images, annotations_table(("P1", "ship", level_box(50, 10, 70, 20))))
    assert objects["iof"].tolist() == [0.5]
    assert objects["ignore"].tolist() == [True]


def test_ignore_regions_stay_such_and_are_not_counted():
    images = images_table(("P1", "train", 100, 100))
    annotations = annotations_table(
        ("P1", "ship", level_box(10, 10, 20, 20)),
        ("P1", "ship", level_box(30, 10, 40, 20)),
        difficult=[True, False],
        ignore=[True, False],
    )
    index, objects = plan(images, annotations)
    assert index["n_objects"].tolist() == [1]
    assert objects[["ignore", "difficult"]].values.tolist() == [[True, True], [False, False]]


def test_object_that_no_tile_shows_enough_of_is_warned_about(caplog):
    images = images_table(("P1", "train", 300, 100))
    annotations = annotations_table(
        ("P1", "bridge", level_box(10, 10, 290, 20)), ("P1", "ship", level_box(10, 30, 20, 40))
    )
    _, objects = plan(images, annotations)
    assert objects.loc[objects["class_name"] == "bridge", "ignore"].all()
    warn_about_lost(annotations, objects, min_visible=0.7)
    (message,) = caplog.messages
    assert "No tile shows 0.7 of the area of these objects" in message
    assert "1 bridge." in message


def test_share_of_empty_training_tiles_is_kept_always_the_same():
    images = images_table(("a", "train", 2000, 2000), ("b", "val", 2000, 2000))
    annotations = annotations_table(("a", "ship", level_box(5, 5, 15, 15)))
    whole, _ = plan(images, annotations)
    half, _ = plan(images, annotations, keep_empty=0.5)
    assert whole["split"].value_counts().to_dict() == {"train": 625, "val": 625}
    counts = half["split"].value_counts().to_dict()
    assert counts["val"] == 625
    assert counts["train"] == pytest.approx(313, abs=4 * 12.5)  # four standard deviations
    again, _ = plan(images.iloc[::-1], annotations, keep_empty=0.5)
    assert set(again["tile_id"]) == set(half["tile_id"])


def test_without_empty_tiles_those_with_objects_are_left():
    images = images_table(("a", "train", 400, 400))
    annotations = annotations_table(("a", "ship", level_box(5, 5, 15, 15)))
    index, _ = plan(images, annotations, keep_empty=0.0)
    assert index[["x", "y"]].values.tolist() == [[0, 0]]


def test_a_part_of_a_lookalike_is_one_and_counts_as_no_object(caplog):
    images = images_table(("P1", "train", 300, 100))
    annotations = annotations_table(
        ("P1", "pier", level_box(10, 10, 290, 20)),
        ("P1", "ship", level_box(10, 30, 20, 40)),
        difficult=[True, False],
        lookalike=[True, False],
    )
    index, objects = plan(images, annotations)
    assert index["n_objects"].tolist() == [1, 0, 0, 0]
    piers = objects[objects["class_name"] == "pier"]
    assert piers["iof"].max() < 0.7
    assert piers["lookalike"].tolist() == [True] * 4
    assert not objects["ignore"].any()
    assert piers[["cx", "w"]].values.tolist() == [[55, 90], [50, 100], [50, 100], [45, 90]]
    assert not objects.loc[objects["class_name"] == "ship", "lookalike"].any()
    assert caplog.messages == []  # nothing is said of a pier that no tile shows whole


def test_a_tile_with_a_lookalike_is_not_thinned_out():
    images = images_table(("a", "train", 500, 100))
    annotations = annotations_table(
        ("a", "ship", level_box(5, 5, 15, 15)),
        ("a", "buoy", level_box(425, 5, 435, 15)),
        lookalike=[False, True],
    )
    index, _ = plan(images, annotations, overlap=0, keep_empty=0.0)
    assert index[["x", "n_objects"]].values.tolist() == [[0, 1], [400, 0]]


def test_lookalikes_alone_are_nothing_to_learn():
    images = images_table(("a", "train", 100, 100))
    annotations = annotations_table(("a", "buoy", level_box(5, 5, 15, 15)), lookalike=True)
    with pytest.raises(DataError, match="1 training tiles and no object on any"):
        require_tile_with_object(images, annotations, "here", 20, TilingSection(tile_size=100))


def test_no_image_gives_empty_tables():
    index, objects = plan(images_table(), annotations_table())
    check_table(index, TILE_INDEX, "tile_index")
    check_table(objects, TILE_ANNOTATIONS, "tile_annotations")
    assert index.empty
    assert objects.empty
