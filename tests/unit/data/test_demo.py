import dataclasses
import itertools
import math

import numpy as np
import pytest
import shapely

from obbflow.data.demo import draw_scene, write_demo_scenes
from obbflow.data.demo_drawing import Canvas
from obbflow.data.demo_objects import (
    CLASS_NAMES,
    draw_helicopter,
    draw_large_vehicle,
    draw_plane,
    draw_ship,
    draw_small_vehicle,
    draw_storage_tank,
)
from obbflow.data.demo_plan import ScenePlan
from obbflow.errors import ConfigError, DataError
from obbflow.tables import CORNERS

SMALL = (320, 300)
DRAWINGS = {
    "helicopter": draw_helicopter,
    "large-vehicle": draw_large_vehicle,
    "plane": draw_plane,
    "yacht": lambda rng: draw_ship(rng, 40.0),
    "cargo ship": lambda rng: draw_ship(rng, 96.0),
    "small-vehicle": draw_small_vehicle,
    "storage-tank": lambda rng: draw_storage_tank(rng, 15.0),
}


@pytest.fixture(scope="module")
def scene():
    return draw_scene(np.random.default_rng([1, 0, 0]), 1100, 900)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("demo")
    write(root)
    return contents(root)


def corners_of(objects):
    """Return (n, 4, 2)."""
    return objects[list(CORNERS)].to_numpy().reshape(-1, 4, 2)


def write(root, seed=3, train_sizes=(SMALL, SMALL), val_sizes=(SMALL,)):
    write_demo_scenes(root, seed=seed, train_sizes=train_sizes, val_sizes=val_sizes)


def contents(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_same_seed_draws_the_same_scene():
    first_image, first_objects = draw_scene(np.random.default_rng(5), 400, 300)
    second_image, second_objects = draw_scene(np.random.default_rng(5), 400, 300)
    assert first_image.shape == (300, 400, 3)
    assert first_image.dtype == np.uint8
    np.testing.assert_array_equal(first_image, second_image)
    assert first_objects.equals(second_objects)


def test_other_seed_draws_another_scene():
    first_image, _ = draw_scene(np.random.default_rng(5), 400, 300)
    second_image, _ = draw_scene(np.random.default_rng(6), 400, 300)
    assert (first_image != second_image).mean() > 0.9


@pytest.mark.parametrize("angle", [0.0, 0.4, math.pi / 2, -2.3], ids="{:.1f} rad".format)
@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS.keys())
def test_box_spans_the_drawn_pixels(draw, angle):
    ground = np.full((160, 160, 3), (255, 0, 255), dtype=np.uint8)  # no object has this colour
    nothing = np.zeros((160, 160), dtype=np.float32)
    plan = ScenePlan(Canvas(ground), nothing > 0, nothing, (0.0, 0.0))
    sprite = dataclasses.replace(draw(np.random.default_rng(0)), height=0.0)  # no shadow

    assert plan.put(sprite, (80.3, 79.6, angle))

    front_left, front_right, back_right, _ = plan.placed[0].corners
    ahead, aside = front_right - back_right, front_right - front_left
    length, width = np.hypot(*ahead), np.hypot(*aside)
    changed = np.abs(plan.canvas.pixels().astype(int) - ground).max(axis=2) > 30
    centres = np.argwhere(changed)[:, ::-1] + 0.5 - (80.3, 79.6)
    # A pixel that the edge crosses has its centre up to 0.7 px from it; tips fade out before.
    for axis, size in ((ahead / length, length), (aside / width, width)):
        along = centres @ axis
        assert along.max() == pytest.approx(size / 2, abs=1.0)
        assert along.min() == pytest.approx(-size / 2, abs=1.0)


def test_first_two_corners_are_the_front():
    nothing = np.zeros((100, 100), dtype=np.float32)
    canvas = Canvas(np.zeros((100, 100, 3), dtype=np.uint8))
    plan = ScenePlan(canvas, nothing > 0, nothing, (0.0, 0.0))
    plan.put(draw_small_vehicle(np.random.default_rng(0)), (50.0, 50.0, math.pi / 2))
    corners = plan.placed[0].corners  # heading down the screen: its left is to the right
    assert (corners[:2, 1] > 50).all()
    assert corners[0, 0] > 50 > corners[1, 0]


def test_every_class_occurs_and_cars_outnumber_the_rest(scene):
    counts = scene[1]["class_name"].value_counts()
    assert set(counts.index) == set(CLASS_NAMES)
    assert counts["small-vehicle"] > 2 * counts.drop("small-vehicle").max()
    assert counts["small-vehicle"] > 8 * counts.min()


def test_a_few_objects_are_difficult(scene):
    assert 0.01 < scene[1]["difficult"].mean() < 0.1


def test_objects_do_not_overlap(scene):
    boxes = shapely.polygons(corners_of(scene[1]))
    pairs = shapely.STRtree(boxes).query(boxes, predicate="intersects")
    first, second = pairs[:, pairs[0] < pairs[1]]
    shared = shapely.area(shapely.intersection(boxes[first], boxes[second]))
    assert (shared < 0.1).all()  # corners are rounded to 0.01 px, sides are up to 110 px long


def test_many_neighbours_would_be_lost_in_nms_of_level_boxes(scene):
    corners = corners_of(scene[1])
    lows, highs = corners.min(axis=1), corners.max(axis=1)
    first, second = np.array(list(itertools.combinations(range(len(corners)), 2))).T
    sides = np.minimum(highs[first], highs[second]) - np.maximum(lows[first], lows[second])
    shared = sides.clip(0).prod(axis=1)
    areas = (highs - lows).prod(axis=1)
    iou = shared / (areas[first] + areas[second] - shared)
    assert (iou > 0.1).sum() > 0.15 * len(corners)  # 0.1: the usual threshold for rotated boxes


def test_boxes_are_rectangles_of_visible_size(scene):
    corners = corners_of(scene[1])
    ahead, aside = corners[:, 1] - corners[:, 2], corners[:, 1] - corners[:, 0]
    lengths, widths = np.hypot(*ahead.T), np.hypot(*aside.T)
    cosines = (ahead * aside).sum(axis=1) / (lengths * widths)
    assert np.abs(cosines).max() < 0.005  # corners are rounded to 0.01 px, sides at least 8 px
    assert np.minimum(lengths, widths).min() > 7.9
    assert np.maximum(lengths, widths).max() < 115


def test_most_of_every_object_is_inside_the_scene(scene):
    image, objects = scene
    boxes = shapely.polygons(corners_of(objects))
    inside = shapely.intersection(boxes, shapely.box(0, 0, image.shape[1], image.shape[0]))
    assert (shapely.area(inside) / shapely.area(boxes)).min() >= 0.7


def test_headings_go_all_around(scene):
    objects = scene[1][scene[1]["class_name"] != "storage-tank"]
    corners = corners_of(objects)
    ahead = corners[:, 1] - corners[:, 2]
    bins = np.histogram(np.arctan2(ahead[:, 1], ahead[:, 0]), 12, (-math.pi, math.pi))[0]
    assert bins.min() >= 3


def test_storage_tanks_have_level_squares(scene):
    corners = corners_of(scene[1][scene[1]["class_name"] == "storage-tank"])
    sizes = corners.max(axis=1) - corners.min(axis=1)
    np.testing.assert_allclose(sizes[:, 0], sizes[:, 1], atol=0.021)  # two roundings to 0.01 px
    np.testing.assert_allclose(corners[:, 0, 0], corners[:, 1, 0], atol=0.011)


def test_too_small_a_scene_is_refused():
    with pytest.raises(ValueError, match="at least 300 px, got 299 x 400"):
        draw_scene(np.random.default_rng(0), 299, 400)


def test_files_are_in_dota_layout(written):
    assert sorted(written) == [
        "demo.json",
        "train/images/demo_train_000.png",
        "train/images/demo_train_001.png",
        "train/labelTxt/demo_train_000.txt",
        "train/labelTxt/demo_train_001.txt",
        "val/images/demo_val_000.png",
        "val/labelTxt/demo_val_000.txt",
    ]
    lines = written["train/labelTxt/demo_train_000.txt"].decode().splitlines()
    assert lines[:2] == ["imagesource:obbflow demo", "gsd:0.5"]
    _, objects = draw_scene(np.random.default_rng([3, 0, 0]), *SMALL)
    assert len(lines) == 2 + len(objects)
    fields = [line.split() for line in lines[2:]]
    assert [row[8] for row in fields] == objects["class_name"].tolist()
    assert [row[9] == "1" for row in fields] == objects["difficult"].tolist()
    numbers = np.array([row[:8] for row in fields], dtype=float)
    np.testing.assert_array_equal(numbers, objects[list(CORNERS)].to_numpy())


def test_same_settings_write_the_same_bytes(tmp_path, written):
    write(tmp_path)
    assert contents(tmp_path) == written


def test_a_scene_does_not_depend_on_how_many_there_are(tmp_path, written):
    write(tmp_path, train_sizes=(SMALL,), val_sizes=())
    found = contents(tmp_path)
    del found["demo.json"]
    assert len(found) == 2
    assert all(written[name] == content for name, content in found.items())


def test_what_is_there_is_not_drawn_again(tmp_path, written):
    write(tmp_path)
    lost, kept = (tmp_path / f"train/images/demo_train_00{i}.png" for i in (0, 1))
    lost.unlink()
    kept.write_bytes(b"only an untouched file keeps this")

    write(tmp_path)

    after = contents(tmp_path)
    assert after.pop("train/images/demo_train_001.png") == b"only an untouched file keeps this"
    assert after == {name: written[name] for name in after}


def test_other_settings_replace_all_scenes(tmp_path, written):
    write(tmp_path, seed=4, train_sizes=((300, 310), SMALL, SMALL))
    write(tmp_path)
    assert contents(tmp_path) == written


def test_an_interrupted_change_of_settings_is_made_good(tmp_path, written, monkeypatch):
    write(tmp_path)

    def draw_one_then_stop(rng, width, height):
        if rng.spawn(1)[0].bit_generator.seed_seq.entropy == [5, 0, 1]:
            raise KeyboardInterrupt
        return draw_scene(rng, width, height)

    with monkeypatch.context() as patch:
        patch.setattr("obbflow.data.demo.draw_scene", draw_one_then_stop)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, seed=5)
    name = "train/images/demo_train_000.png"
    assert contents(tmp_path)[name] != written[name]  # already replaced

    write(tmp_path)
    assert contents(tmp_path) == written


def test_other_peoples_files_are_neither_mixed_in_nor_removed(tmp_path):
    foreign = tmp_path / "train/images/P0001.png"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"mine")
    with pytest.raises(DataError, match=r"P0001\.png: 1 file\(s\) .* move them elsewhere"):
        write(tmp_path)
    assert contents(tmp_path) == {"train/images/P0001.png": b"mine"}


def test_sizes_too_small_are_all_reported_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError) as error:
        write(tmp_path, train_sizes=((200, 400), SMALL), val_sizes=((400, 10),))
    assert "demo.train_sizes: [200, 400] is too small" in str(error.value)
    assert "demo.val_sizes: [400, 10] is too small" in str(error.value)
    assert contents(tmp_path) == {}
