import numpy as np
import pandas as pd
import pytest
import torch

from obbflow.config import TilingSection
from obbflow.data.tile_check import check_geometry
from obbflow.data.tile_tables import plan_tiles
from obbflow.geometry import qbox_to_rbox, rbox_to_qbox
from obbflow.inference.merge import merge_windows
from obbflow.inference.tables import WINDOW_DETECTIONS
from obbflow.tables import CORNERS, RBOX, make_table
from scenes import annotations_table, images_table

OVERLAP = 40
TILING = TilingSection(tile_size=128, corners="keep_angle")


def draw(count, longest, seed=0):
    """Return tables with rotated objects inside a scene, of sides up to ``longest``."""
    rng = np.random.default_rng(seed)
    sides = rng.uniform(4, longest, (count, 2))
    rboxes = np.concatenate(
        [rng.uniform(60, 440, (count, 2)), sides, rng.uniform(-1.5, 1.5, (count, 1))], axis=1
    )
    corners = rbox_to_qbox(torch.from_numpy(rboxes)).numpy()
    annotations = annotations_table(*(("P1", "ship", row) for row in corners))
    return images_table(("P1", "train", 500, 500)), annotations


def check(images, annotations, index, objects):
    return check_geometry(images, annotations, index, objects, OVERLAP, TILING)


def test_every_object_that_fits_into_the_overlap_comes_back():
    images, annotations = draw(400, 28)  # a diagonal of less than 40
    geometry = check(images, annotations, *plan_tiles(images, annotations, OVERLAP, TILING))
    assert geometry.n_fitting == geometry.n_whole == 400
    assert geometry.largest_error < 1e-9  # float64 rounding


def test_objects_beyond_the_overlap_or_the_image_are_not_asked_for():
    images, annotations = draw(400, 100)
    annotations.loc[0, list(CORNERS)] = [-5, 10, 5, 10, 5, 20, -5, 20]
    geometry = check(images, annotations, *plan_tiles(images, annotations, OVERLAP, TILING))
    assert 0 < geometry.n_fitting < 399
    assert geometry.n_whole == geometry.n_fitting
    assert geometry.largest_error < 1e-9


@pytest.mark.parametrize("fault", ["shifted", "lost"])
def test_a_fault_is_noticed(fault):
    images, annotations = draw(50, 28)
    index, objects = plan_tiles(images, annotations, OVERLAP, TILING)
    if fault == "shifted":
        index.loc[3, "x"] += 1
        assert check(images, annotations, index, objects).largest_error == pytest.approx(1)
    else:
        objects = objects[objects["object_id"] != 7]
        assert check(images, annotations, index, objects).n_whole == 49


def test_no_object_is_no_error():
    images, annotations = draw(3, 28)
    nothing = annotations.iloc[:0]
    geometry = check(images, nothing, *plan_tiles(images, nothing, OVERLAP, TILING))
    assert (geometry.n_fitting, geometry.n_whole, geometry.largest_error) == (0, 0, 0)


def test_lookalikes_are_not_asked_for():
    images, annotations = draw(50, 28)
    annotations["lookalike"] = annotations.index < 20
    geometry = check(images, annotations, *plan_tiles(images, annotations, OVERLAP, TILING))
    assert (geometry.n_fitting, geometry.n_whole) == (30, 30)


def test_ground_truth_cut_and_merged_like_detections_is_the_input():
    rng = np.random.default_rng(1)
    places = np.stack(np.meshgrid(np.arange(30, 480, 40), np.arange(30, 480, 40)), -1)
    centres = places.reshape(-1, 2) + rng.uniform(-4, 4, (places.size // 2, 2))
    shape = [rng.uniform(6, 26, (len(centres), 2)), rng.uniform(-1.5, 1.5, (len(centres), 1))]
    rboxes = torch.from_numpy(np.concatenate([centres, *shape], axis=1))
    corners = rbox_to_qbox(rboxes)
    annotations = annotations_table(*(("P1", "ship", row) for row in corners.tolist()))
    images = images_table(("P1", "train", 500, 500))
    index, objects = plan_tiles(images, annotations, OVERLAP, TILING)

    table = objects.merge(index[["tile_id", "x", "y", "width", "height"]], on="tile_id")
    table[["cx", "cy"]] += table[["x", "y"]].to_numpy()
    windows = {name: f"window_{name}" for name in ("x", "y", "width", "height")}
    table = table.rename(columns=windows).assign(image_id="P1", score=table["iof"])
    merged = merge_windows(
        make_table(table, WINDOW_DETECTIONS),
        images[["image_id", "path", "width", "height"]],
        iou_threshold=0.1,
    )

    order = ["cx", "cy"]
    expected = pd.DataFrame(qbox_to_rbox(corners).numpy(), columns=list(RBOX)).sort_values(order)
    found = merged[list(RBOX)].sort_values(order)
    assert len(index) > 9
    np.testing.assert_allclose(found.to_numpy(), expected.to_numpy(), atol=1e-9)
