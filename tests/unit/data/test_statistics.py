from obbflow.data.statistics import count_by_split, count_on_tiles, describe_counts
from obbflow.tables import TILE_ANNOTATIONS, TILE_INDEX, make_table
from scenes import annotations_table, images_table, level_box

COLUMNS = [
    "split",
    "class_name",
    "n_objects",
    "n_difficult",
    "n_small",
    "n_medium",
    "n_large",
    "n_ignored",
]


def test_objects_are_counted_by_split_class_difficulty_and_size():
    annotations = annotations_table(
        ("P2", "ship", level_box(0, 0, 31, 32)),
        ("P1", "ship", level_box(0, 0, 32, 32)),
        ("P1", "ship", level_box(0, 0, 95, 96)),
        ("P1", "ship", level_box(0, 0, 96, 96)),
        ("P1", "plane", level_box(0, 0, 5, 5)),
        difficult=[True, False, False, True, True],
        ignore=[False, False, False, False, True],
    )
    images = images_table(("P1", "train", 100, 100), ("P2", "val", 100, 100))
    counts = count_by_split(images, annotations)
    assert list(counts.columns) == COLUMNS
    assert counts.values.tolist() == [
        ["train", "plane", 0, 0, 0, 0, 0, 1],
        ["train", "ship", 3, 1, 0, 2, 1, 0],
        ["val", "ship", 1, 1, 1, 0, 0, 0],
    ]
    assert describe_counts(counts) == (
        "train: 3 objects of 1 classes, 0 small, 2 medium, 1 large, 1 difficult, 1 ignored; "
        "val: 1 objects of 1 classes, 1 small, 0 medium, 0 large, 1 difficult, 0 ignored"
    )


def test_object_on_two_tiles_counts_once_as_where_it_is_seen_best():
    tiles = [(name, "P1", "train", 0, 0, 64, 64, name, 1, 1.0) for name in ("a", "b", "c")]
    boxes = [
        ("a", "ship", 9.0, 9.0, 10.0, 10.0, 0.0, False, True, False, 0.9, 7),
        ("b", "ship", 9.0, 9.0, 40.0, 30.0, 0.0, False, False, False, 0.8, 7),
        ("c", "ship", 9.0, 9.0, 10.0, 10.0, 0.0, False, False, False, 0.7, 7),
    ]
    counts = count_on_tiles(make_table(tiles, TILE_INDEX), make_table(boxes, TILE_ANNOTATIONS))
    assert counts.values.tolist() == [["train", "ship", 1, 0, 0, 1, 0, 0]]


def test_lookalikes_are_not_counted():
    annotations = annotations_table(
        ("P1", "buoy", level_box(0, 0, 5, 5)),
        ("P1", "ship", level_box(0, 0, 5, 5)),
        lookalike=[True, False],
    )
    counts = count_by_split(images_table(("P1", "train", 100, 100)), annotations)
    assert counts.values.tolist() == [["train", "ship", 1, 0, 1, 0, 0, 0]]
    tiles = make_table([("a", "P1", "train", 0, 0, 64, 64, "a", 1, 1.0)], TILE_INDEX)
    boxes = [
        ("a", name, 9.0, 9.0, 10.0, 10.0, 0.0, False, False, name == "buoy", 1.0, number)
        for number, name in enumerate(("buoy", "ship"))
    ]
    counts = count_on_tiles(tiles, make_table(boxes, TILE_ANNOTATIONS))
    assert counts.values.tolist() == [["train", "ship", 1, 0, 1, 0, 0, 0]]


def test_no_object_at_all_gives_no_row():
    none = annotations_table(("P1", "ship", level_box(0, 0, 1, 1))).iloc[:0]
    counts = count_by_split(images_table(("P1", "train", 9, 9)), none)
    assert list(counts.columns) == COLUMNS
    assert counts.empty
    assert describe_counts(counts) == "none"
