import numpy as np
import pandas as pd
import pytest
from PIL import Image

from obbflow.evaluation import evaluate_detections
from obbflow.reporting.drawing import (
    DETECTION_COLOUR,
    IGNORE_COLOUR,
    TRUTH_COLOUR,
    Mark,
    draw_tile,
    marks_of_tile,
    pick_tiles,
)
from obbflow.tables import DETECTIONS, GROUND_TRUTH, make_table

A, B, C = (20.0, 20.0, 16.0, 8.0, 0.3), (60.0, 20.0, 16.0, 8.0, -0.7), (60.0, 60.0, 20.0, 20.0, 0.0)


def scored(found, truth):
    detections, ground_truth = make_table(found, DETECTIONS), make_table(truth, GROUND_TRUTH)
    classes = sorted({*detections["class_name"], *ground_truth["class_name"]})
    return detections, ground_truth, evaluate_detections(detections, ground_truth, classes)


def pick(found, truth, tile_ids):
    picked = pick_tiles(*scored(found, truth), pd.Series(tile_ids), 0.5, 0.5)
    return [(tile.role.split()[0], tile.tile_id, round(tile.f1, 3)) for tile in picked]


def test_best_median_and_worst_tile_by_f1():
    truth = [(f"t{number}", "a", *A, False) for number in range(4)]
    found = [("t0", "a", 0.9, *A), ("t1", "a", 0.9, *A), ("t1", "a", 0.8, *C)]
    assert pick(found, truth, ["t0", "t1", "t2", "t3", "empty"]) == [
        ("Best", "t0", 1.0),
        ("Median", "t1", 0.667),
        ("Worst", "t2", 0.0),
    ]


def test_of_equal_tiles_the_fuller_one_is_shown():
    truth = [("t0", "a", *A, False), ("t1", "a", *A, False), ("t1", "a", *B, False)]
    found = [("t0", "a", 0.9, *A), ("t1", "a", 0.9, *A), ("t1", "a", 0.9, *B)]
    assert pick(found, truth, ["t0", "t1"])[0] == ("Best", "t1", 1.0)


@pytest.mark.parametrize(
    ("truth", "tile_ids", "expected"),
    [
        ([], [], []),
        ([], ["t0"], []),
        ([("t0", "a", *A, False)], ["t0"], [("The", "t0", 0.0)]),
        (
            [("t0", "a", *A, False), ("t1", "a", *A, False)],
            ["t0", "t1"],
            [("Best", "t0", 0.0), ("Worst", "t1", 0.0)],
        ),
    ],
    ids=["no tile", "empty tile", "one tile", "two alike"],
)
def test_few_tiles_are_no_problem(truth, tile_ids, expected):
    picked = pick([], truth, tile_ids)
    assert picked == expected


def test_marks_tell_hits_misses_and_false_positives_apart():
    tables = scored(
        [
            ("t", "ship", 0.9, *A),
            ("t", "ship", 0.7, *C),
            ("t", "ship", 0.2, *B),
            ("other", "ship", 0.9, *B),
        ],
        [("t", "ship", *A, False), ("t", "ship", *B, False), ("t", "tank", *C, True)],
    )
    marks = marks_of_tile("t", *tables, 0.5, 0.5)
    assert [(mark.colour, mark.is_error, mark.label) for mark in marks] == [
        (TRUTH_COLOUR, False, ""),
        (IGNORE_COLOUR, False, ""),
        (DETECTION_COLOUR, False, "ship 0.90"),
        (TRUTH_COLOUR, True, "missed: ship"),
        (DETECTION_COLOUR, True, "wrong: ship 0.70"),
    ]
    assert np.mean(marks[2].corners, axis=0).tolist() == pytest.approx([20.0, 20.0])


def test_boxes_are_drawn_where_they_are_and_small_tiles_enlarged():
    square = ((10.0, 10.0), (30.0, 10.0), (30.0, 30.0), (10.0, 30.0))
    tile = Image.new("RGB", (80, 60))
    drawn = draw_tile(tile, [Mark(square, TRUTH_COLOUR, is_error=False, label="")])
    factor = drawn.width // 80
    assert drawn.size == (80 * factor, 60 * factor)
    assert factor == 12
    assert drawn.getpixel((20 * factor, 10 * factor)) == TRUTH_COLOUR
    assert drawn.getpixel((20 * factor, 20 * factor)) == (0, 0, 0)
    assert tile.getpixel((20, 10)) == (0, 0, 0)  # the tile itself is untouched


def test_errors_are_filled():
    square = ((10.0, 10.0), (30.0, 10.0), (30.0, 30.0), (10.0, 30.0))
    drawn = draw_tile(
        Image.new("RGB", (80, 60)), [Mark(square, TRUTH_COLOUR, is_error=True, label="")]
    )
    inside = drawn.getpixel((20 * 12, 20 * 12))
    assert inside[0] > inside[1] > inside[2] == 0


def test_labels_that_would_cover_others_are_left_out():
    square = ((100.0, 100.0), (300.0, 100.0), (300.0, 300.0), (100.0, 300.0))
    mark = Mark(square, TRUTH_COLOUR, is_error=True, label="missed: ship")
    two = draw_tile(Image.new("RGB", (960, 960)), [mark] * 2)
    three = draw_tile(Image.new("RGB", (960, 960)), [mark] * 3)
    label_area = slice(70, 98), slice(100, 240)
    assert np.asarray(two)[label_area].any()
    # One label above, one below; a third has no place, so outside of the fill nothing changes.
    assert (np.asarray(two)[:98] == np.asarray(three)[:98]).all()
    assert (np.asarray(two)[303:] == np.asarray(three)[303:]).all()


def test_boxes_beyond_the_tile_and_long_names_are_drawn():
    far = ((-50.0, -50.0), (-40.0, -50.0), (-40.0, 2000.0), (-50.0, 2000.0))
    dot = ((5.0, 5.0),) * 4
    marks = [Mark(shape, TRUTH_COLOUR, is_error=True, label="é" * 70) for shape in (far, dot)]
    assert draw_tile(Image.new("RGB", (100, 100)), marks).size == (1000, 1000)
