"""Windows and visible shares recorded from a public tiling tool (golden README, section 10).

Its windows are ours: the last one of a row or column is moved back flush with the border, and an
image that is smaller gives one. It also has several tile sizes at once and a limit on the share
of a window inside the image (``img_rate_thr``); `fuller_windows` is that rule. Its shares are exact
polygon areas, as ours. It keeps an object's full corners where a tile cuts it, as
``keep_corners`` does.
"""

import json

import numpy as np
import pytest
import torch

from obbflow.data.tiling import WHOLE, ObjectCutter, fuller_windows, windows
from obbflow.geometry import qbox_to_rbox

MIN_VISIBLE = (0.7, 0.5, 0.3)


@pytest.fixture(scope="module")
def golden(shared_dir):
    return np.load(shared_dir / "golden" / "tiling.npz")


def test_windows_of_one_tile_size_agree(shared_dir):
    cases = json.loads((shared_dir / "golden" / "tiling.json").read_text())["windows"]
    single = [case for case in cases if len(case["sizes"]) == 1]
    assert len(single) == 56
    for case in single:
        (size,), (overlap,) = case["sizes"], case["gaps"]
        found = sorted(windows(case["width"], case["height"], size, overlap))
        corners = [[x, y, x + size, y + size] for x, y in found]
        assert len(corners) == case["count"], case
        assert np.sum(corners, axis=0).tolist() == case["sum"], case
        listed = case["windows"]
        ends = corners if len(corners) <= len(listed) else [*corners[:6], *corners[-6:]]
        assert ends == listed, case


def test_windows_of_several_sizes_are_those_of_each_size(shared_dir):
    cases = json.loads((shared_dir / "golden" / "tiling.json").read_text())["windows"]
    for case in (case for case in cases if len(case["sizes"]) > 1):
        pairs = list(zip(case["sizes"], case["gaps"], strict=True))
        found = {
            (x, y, x + size, y + size)
            for size, overlap in pairs
            for x, y in windows(case["width"], case["height"], size, overlap)
        }
        # The tool leaves out windows that lie too far outside of a small image, we never do.
        assert {tuple(window) for window in case["windows"]} <= found, case


def test_the_rule_of_mmrotate_gives_its_windows_in_its_order(shared_dir):
    cases = json.loads((shared_dir / "golden" / "tiling.json").read_text())["windows"]
    assert len(cases) == 112
    for case in cases:
        found = fuller_windows(
            case["width"], case["height"], case["sizes"], case["gaps"], case["img_rate_thr"]
        )
        corners = [[x, y, x + size, y + size] for x, y, size in found]
        assert len(corners) == case["count"], case
        assert np.sum(corners, axis=0).tolist() == case["sum"], case
        listed = case["windows"]
        ends = corners if len(corners) <= len(listed) else [*corners[:6], *corners[-6:]]
        assert ends == listed, case


def test_untouched_corners_are_those_of_the_label(golden):
    polygons = golden["polygons"].astype(np.float64)
    whole = qbox_to_rbox(torch.from_numpy(polygons)).numpy()
    places = golden["windows"].astype(np.int64)
    places[:, 2:] -= places[:, :2]
    cuts = ObjectCutter(polygons).cut_all(places, min_visible=0.3, keep_corners=True)
    for (x, y, _, _), cut in zip(places, cuts, strict=True):
        np.testing.assert_allclose(
            cut.rboxes + np.array([x, y, 0, 0, 0]), whole[cut.rows], atol=1e-9
        )


def test_visible_shares_agree(golden):
    cutter = ObjectCutter(golden["polygons"].astype(np.float64))
    found = np.zeros_like(golden["iof"])
    for column, (x1, y1, x2, y2) in enumerate(golden["windows"]):
        cut = cutter.cut(x1, y1, x2 - x1, y2 - y1, min_visible=0.7)
        found[cut.rows, column] = cut.iof
    # The recorded shares divide by an area in float32.
    np.testing.assert_allclose(found, golden["iof"], atol=1e-6)


@pytest.mark.parametrize("min_visible", MIN_VISIBLE)
def test_the_same_objects_are_dropped_whole_and_cut(golden, min_visible):
    cutter = ObjectCutter(golden["polygons"].astype(np.float64))
    found = np.zeros_like(golden[f"kept_iof_{min_visible}"])
    for column, (x1, y1, x2, y2) in enumerate(golden["windows"]):
        cut = cutter.cut(x1, y1, x2 - x1, y2 - y1, min_visible)
        found[cut.rows, column] = np.where(cut.iof >= WHOLE, 1, 2) * ~cut.ignore
    # Float32 shares leave some whole objects a little below 1: there the tool says "cut".
    whole = golden["iof"] > 1 - 1e-6
    expected = np.where(whole, 1, golden[f"kept_iof_{min_visible}"])
    np.testing.assert_array_equal(found, expected)
