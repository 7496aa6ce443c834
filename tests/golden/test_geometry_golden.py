"""Conversions and moves of boxes against MMRotate 1.2.1, 0.3.4 and OpenCV 4.14 (``convert.npz``).

Rectangles are compared by their corners, whichever comes first: MMRotate gives squares an angle
of -pi/2 where we give 0. Its flips mirror x to width - x, as ours do; there is no half-pixel
difference. Every array is used. Two functions have no counterpart here: level boxes of
quadrilaterals are compared on rectangles, through their rboxes, and the projection by a matrix
through the corners.
"""

import json
import math

import numpy as np
import pytest
import torch

from obbflow.geometry import (
    flip_rboxes,
    normalize_le90,
    qbox_to_rbox,
    rbox_to_hbox,
    rbox_to_qbox,
    rotate_rboxes,
    scale_rboxes,
    shift_rboxes,
)

# Golden boxes are float32 results around 1,000 px, where float32 has steps of 6e-5 px.
TOLERANCE = 5e-4


@pytest.fixture(scope="module")
def convert(request):
    with np.load(request.getfixturevalue("shared_dir") / "golden" / "convert.npz") as file:
        golden = {name: torch.from_numpy(file[name]) for name in file.files if name != "meta"}
        return golden | {"meta": json.loads(str(file["meta"]))}


def corner_distance(actual, expected):
    """Largest distance (N,) of corresponding corners, over the best of the four numberings."""
    return quad_distance(rbox_to_qbox(actual.double()), rbox_to_qbox(expected.double()))


def quad_distance(actual, expected):
    actual, expected = actual.reshape(-1, 4, 2), expected.reshape(-1, 4, 2)
    distances = [(actual - expected.roll(n, dims=1)).norm(dim=2).amax(dim=1) for n in range(4)]
    return torch.stack(distances).amin(dim=0)


def area(rboxes):
    return (rboxes[:, 2] * rboxes[:, 3]).double()


def is_rectangle(convert):
    kinds = convert["meta"]["quad_kinds"]
    return torch.tensor([kinds[k].startswith("rectangle") for k in convert["quads_kind"]])


def test_normalised_boxes_are_those_of_mmrotate_but_for_squares(convert):
    actual, expected = normalize_le90(convert["rboxes"]), convert["regularised_le90"]
    assert corner_distance(actual, expected).max() < TOLERANCE
    is_square = expected[:, 2] == expected[:, 3]
    assert 0 < is_square.sum() < 20
    torch.testing.assert_close(actual[~is_square], expected[~is_square], rtol=0, atol=2e-6)
    # Over whole turns, squares agree up to quarter turns.
    quarters = (actual - expected)[is_square, 4] / (math.pi / 2)
    torch.testing.assert_close(quarters, quarters.round(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("convention", ["le90", "le135", "oc"])
def test_boxes_of_other_conventions_become_le90(convert, convention):
    """le135 has angles in [-pi/4, 3 pi/4), oc in [-pi/2, 0) with either side the longer one."""
    actual = normalize_le90(convert[f"regularised_{convention}"])
    assert corner_distance(actual, convert["rboxes"]).max() < TOLERANCE
    longer, shorter = actual[:, 2:4].unbind(dim=1)
    assert (longer >= shorter).all()
    assert ((actual[:, 4] >= -math.pi / 2) & (actual[:, 4] < math.pi / 2)).all()


def test_corners_are_those_of_mmrotate_in_its_order(convert):
    top_left, top_right, bottom_right, bottom_left = rbox_to_qbox(convert["rboxes"]).split(2, dim=1)
    theirs = torch.cat([bottom_right, top_right, top_left, bottom_left], dim=1)
    torch.testing.assert_close(theirs, convert["rbox2qbox"], rtol=0, atol=TOLERANCE)


def test_corners_are_those_of_mmrotate_0_in_our_order(convert):
    actual = rbox_to_qbox(convert["regularised_le90"])
    torch.testing.assert_close(actual, convert["v0_obb2poly_le90"], rtol=0, atol=TOLERANCE)


def test_level_boxes_are_those_of_mmrotate(convert):
    actual = rbox_to_hbox(convert["rboxes"])
    torch.testing.assert_close(actual, convert["rbox2hbox"], rtol=0, atol=TOLERANCE)


def test_level_boxes_of_rectangles_are_those_of_mmrotate(convert):
    quads, expected = (convert[name][is_rectangle(convert)] for name in ("quads", "qbox2hbox"))
    actual = rbox_to_hbox(qbox_to_rbox(quads))
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    "name",
    [
        "qbox2rbox_le90",
        "qbox2rbox_le135",
        "qbox2rbox_oc",
        "qbox2rbox_raw_cv2",
        "v0_poly2obb_np_le90",
    ],
)
def test_rectangles_of_quadrilaterals_are_those_of_opencv(convert, name):
    """A few quadrilaterals have two least rectangles, of which OpenCV took the other one.

    MMRotate 0.3.4 drops boxes with a side under 2 px; we do not.
    """
    given = convert.get(f"{name}_valid", torch.ones(len(convert["quads"]), dtype=torch.bool))
    actual, expected = qbox_to_rbox(convert["quads"][given]), convert[name][given]
    assert actual.isfinite().all()
    assert (area(actual) <= area(expected) * (1 + 1e-5) + 1e-3).all()
    same = corner_distance(actual, expected) < TOLERANCE
    for number, kind in enumerate(convert["meta"]["quad_kinds"]):
        of_kind = convert["quads_kind"][given] == number
        allowed = 10 if kind in ("irregular", "integer_corners") else 0
        assert (~same[of_kind]).sum() <= allowed, kind
    tied = (area(actual) - area(expected)).abs() <= 1e-5 * area(expected)
    assert (same | tied).all()


def test_rectangles_are_those_along_the_first_edge_that_mmrotate_0_takes(convert):
    """Of other quadrilaterals the rectangle along the first edge is not the least one."""
    quads, expected = convert["quads"], convert["v0_poly2obb_torch_le90"]
    same = corner_distance(qbox_to_rbox(quads), expected) < TOLERANCE
    assert same[is_rectangle(convert)].all()
    assert not same.all()


@pytest.mark.parametrize("direction", ["horizontal", "vertical", "diagonal"])
def test_flips_are_those_of_mmrotate(convert, direction):
    image_size = tuple(convert["meta"]["image_shape_hw"])
    actual = flip_rboxes(convert["regularised_le90"], direction, image_size)
    assert corner_distance(actual, convert[f"flip_{direction}"]).max() < TOLERANCE


@pytest.mark.parametrize("degrees", [30, -75, 90])
def test_rotations_are_those_of_mmrotate(convert, degrees):
    actual = rotate_rboxes(convert["regularised_le90"], math.radians(degrees), (499.5, 399.5))
    assert corner_distance(actual, convert[f"rotate_{degrees}"]).max() < TOLERANCE


def test_shift_is_that_of_mmrotate(convert):
    actual = shift_rboxes(convert["regularised_le90"], -13.5, 7.25)
    assert corner_distance(actual, convert["translate_-13.5_7.25"]).max() < TOLERANCE


def test_corners_through_a_matrix_give_the_box_that_mmrotate_projects(convert):
    matrix = convert["project_matrix"].double()
    corners = rbox_to_qbox(convert["regularised_le90"].double()).reshape(-1, 4, 2)
    moved = torch.cat([corners, torch.ones(len(corners), 4, 1)], dim=2) @ matrix.T
    actual = qbox_to_rbox((moved[..., :2] / moved[..., 2:]).reshape(-1, 8))
    assert corner_distance(actual, convert["project"]).max() < TOLERANCE


def test_equal_scaling_is_that_of_mmrotate(convert):
    actual = scale_rboxes(convert["regularised_le90"], 2.0, 2.0)
    assert corner_distance(actual, convert["rescale_2_2"]).max() < TOLERANCE


def test_unequal_scaling_is_that_of_mmrotate_for_level_boxes_alone(convert):
    """MMRotate 1.2.1 turns oblique boxes the wrong way when it stretches them.

    It scales the two sides as vectors but takes atan2(scale_x sin, scale_y cos) as the angle,
    where the w side lies along (scale_x cos, scale_y sin). We return the least rectangle that
    holds the stretched one, so its oblique boxes are no target.
    """
    boxes, expected = convert["regularised_le90"], convert["rescale_1.5_0.75"]
    actual = scale_rboxes(boxes, 1.5, 0.75)
    is_level = (torch.sin(2 * boxes[:, 4]).abs() < 1e-6) & (boxes[:, 2] != boxes[:, 3])
    assert is_level.sum() >= 3
    assert corner_distance(actual, expected)[is_level].max() < TOLERANCE
    torch.testing.assert_close(actual[:, :2], expected[:, :2], rtol=0, atol=TOLERANCE)
    cos, sin = boxes[:, 4].double().cos(), boxes[:, 4].double().sin()
    theirs = torch.atan2(1.5 * sin, 0.75 * cos)
    difference = theirs - expected[:, 4]
    assert torch.sin(2 * difference).abs().max() < 1e-5  # same line, or across for swapped sides
