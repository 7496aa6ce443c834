import math

import pytest
import torch

from obbflow.config import PreprocessingSection
from obbflow.data.sampler import seeded_generator
from obbflow.data.transforms import (
    EvalTransform,
    TrainTransform,
    crop,
    flip,
    keep_visible,
    normalize,
    random_crop,
    random_flip,
    random_rotate,
    resize,
    resize_factors,
    rotate,
)
from obbflow.errors import ConfigError

HEIGHT, WIDTH = 60, 80
SUBSAMPLES = 8  # points a pixel and axis
BOXES = {
    "oblique": [30.3, 28.6, 24.0, 10.0, 0.5],
    "steep": [45.2, 31.7, 20.0, 7.0, -1.3],
    "level": [40.0, 30.0, 22.0, 12.0, 0.0],
    "square": [42.4, 27.9, 16.0, 16.0, 0.3],
}
boxes = pytest.mark.parametrize("box", BOXES.values(), ids=BOXES.keys())


def draw(rboxes: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Return the share of each pixel that the boxes cover, (3, H, W), by counting points."""
    height, width = size
    ys = (torch.arange(height * SUBSAMPLES, dtype=torch.float64) + 0.5) / SUBSAMPLES
    xs = (torch.arange(width * SUBSAMPLES, dtype=torch.float64) + 0.5) / SUBSAMPLES
    covered = torch.zeros(len(ys), len(xs), dtype=torch.bool)
    for cx, cy, w, h, angle in rboxes.double().tolist():
        x, y = xs[None, :] - cx, ys[:, None] - cy
        along_w = math.cos(angle) * x + math.sin(angle) * y
        along_h = -math.sin(angle) * x + math.cos(angle) * y
        covered |= (along_w.abs() < w / 2) & (along_h.abs() < h / 2)
    share = torch.nn.functional.avg_pool2d(covered.double()[None, None], SUBSAMPLES)[0, 0]
    return share.expand(3, -1, -1).contiguous()


def moments(mask: torch.Tensor) -> tuple[float, float, float, float]:
    """Return area, centre x and y, and the direction of the long axis of a drawn box."""
    share = mask[0]
    area = share.sum()
    y = torch.arange(share.shape[0], dtype=share.dtype)[:, None] + 0.5
    x = torch.arange(share.shape[1], dtype=share.dtype)[None, :] + 0.5
    cx, cy = (share * x).sum() / area, (share * y).sum() / area
    xx, yy = (share * (x - cx) ** 2).sum(), (share * (y - cy) ** 2).sum()
    xy = (share * (x - cx) * (y - cy)).sum()
    direction = 0.5 * torch.atan2(2 * xy, xx - yy)
    return area.item(), cx.item(), cy.item(), direction.item()


def make_target(rboxes, ignored=(), labels=None):
    rboxes = torch.tensor(rboxes, dtype=torch.float64).reshape(-1, 5)
    ignored = torch.tensor(ignored, dtype=torch.float64).reshape(-1, 5)
    labels = [1] * len(rboxes) if labels is None else labels
    return {
        "rboxes": rboxes,
        "labels": torch.tensor(labels, dtype=torch.int64),
        "rboxes_ignore": ignored,
        "labels_ignore": torch.full((len(ignored),), 2, dtype=torch.int64),
    }


def assert_drawn_exactly(image, target):
    """Pixels were only moved: at most the points on an edge, 2 of 64 a pixel, may differ."""
    expected = draw(target["rboxes"], tuple(image.shape[-2:]))
    assert expected.sum() > 100
    torch.testing.assert_close(image, expected, atol=2.1 / SUBSAMPLES**2, rtol=0)


def assert_drawn_closely(image, target, *, is_square=False):
    """Pixels were resampled: the edge is softer, but area, centre and direction stay.

    Interpolating is a symmetric blur: it moves no centre. What is left is the error of counting
    points 1/8 px apart: a side of 10 px is wrong by 0.1 px at most, which is 1 % of the area. The
    errors of two opposite edges cancel in the centre: 0.02 px; half a pixel of shift is 25 times
    that.
    """
    area, cx, cy, direction = moments(image)
    drawn_area, drawn_cx, drawn_cy, drawn_direction = moments(
        draw(target["rboxes"], tuple(image.shape[-2:]))
    )
    assert area == pytest.approx(drawn_area, rel=1e-2)
    assert (cx, cy) == pytest.approx((drawn_cx, drawn_cy), abs=0.02)
    if not is_square:  # a square has no long axis
        difference = (direction - drawn_direction + math.pi / 2) % math.pi - math.pi / 2
        assert difference == pytest.approx(0, abs=5e-3)


# Flips


@boxes
@pytest.mark.parametrize("direction", ["horizontal", "vertical", "diagonal"])
def test_flipped_box_lies_on_the_flipped_image(box, direction):
    target = make_target([box])
    image, moved = flip(draw(target["rboxes"], (HEIGHT, WIDTH)), target, direction)
    assert_drawn_exactly(image, moved)


@boxes
@pytest.mark.parametrize("direction", ["horizontal", "vertical", "diagonal"])
def test_flipping_twice_gives_the_sample_back(box, direction):
    image, target = torch.rand(3, HEIGHT, WIDTH), make_target([box], ignored=[box])
    again, back = flip(*flip(image, target, direction), direction)
    assert torch.equal(again, image)
    torch.testing.assert_close(back["rboxes"], target["rboxes"], atol=1e-6, rtol=0)
    torch.testing.assert_close(back["rboxes_ignore"], target["rboxes_ignore"], atol=1e-6, rtol=0)


def test_flip_moves_ignore_regions_like_objects():
    target = make_target([BOXES["oblique"]], ignored=[BOXES["oblique"]])
    _, moved = flip(torch.zeros(3, HEIGHT, WIDTH), target, "horizontal")
    assert moved["rboxes"][0, 0] == pytest.approx(WIDTH - 30.3)
    torch.testing.assert_close(moved["rboxes_ignore"], moved["rboxes"])


@pytest.mark.parametrize(
    "move",
    [
        lambda image, target: flip(image, target, "diagonal"),
        lambda image, target: rotate(image, target, 90.0),
        lambda image, target: rotate(image, target, 20.0),
        lambda image, target: resize(image, target, (2.0, 3.0)),
        lambda image, target: crop(image, target, (3, 2), (HEIGHT - 3, WIDTH - 4)),
    ],
    ids=["flip", "quarter turn", "rotation", "resize", "crop"],
)
def test_lookalikes_move_like_objects(move):
    box = [22.0, 25.0, 12.0, 6.0, 0.4]
    target = make_target([box])
    _, moved = move(torch.zeros(3, HEIGHT, WIDTH), target | {"rboxes_lookalike": target["rboxes"]})
    assert not torch.equal(moved["rboxes"], target["rboxes"])
    assert torch.equal(moved["rboxes_lookalike"], moved["rboxes"])
    assert len(moved["labels"]) == 1
    assert len(moved["rboxes_ignore"]) == 0


def test_flip_leaves_its_input_alone():
    target = make_target([BOXES["oblique"]])
    flip(torch.zeros(3, HEIGHT, WIDTH), target, "diagonal")
    assert target["rboxes"].tolist() == [BOXES["oblique"]]


def flip_share(**enabled) -> dict[str, float]:
    """Return how often each orientation of an image comes out of 400 draws."""
    image = torch.tensor([[0.0, 1.0], [2.0, 3.0]]).expand(3, 2, 2)
    names = {0.0: "original", 1.0: "horizontal", 2.0: "vertical", 3.0: "diagonal"}
    generator = seeded_generator(0)
    section = PreprocessingSection(**enabled)
    counts = dict.fromkeys(names.values(), 0)
    for _ in range(400):
        flipped, _ = random_flip(image, make_target([]), section, generator)
        counts[names[flipped[0, 0, 0].item()]] += 1
    return {name: count / 400 for name, count in counts.items()}


def test_two_flips_show_all_four_orientations_equally():
    # 0.07 is 3 standard deviations of a share of 1/4 in 400 draws.
    assert flip_share() == pytest.approx(
        {"original": 0.25, "horizontal": 0.25, "vertical": 0.25, "diagonal": 0.25}, abs=0.07
    )


def test_disabled_flips_never_happen():
    share = flip_share(enable_flip_vertical=False)
    assert share["vertical"] == share["diagonal"] == 0
    assert share["horizontal"] == pytest.approx(0.5, abs=0.08)


def test_diagonal_flip_alone_is_half_a_turn():
    share = flip_share(
        enable_flip_horizontal=False, enable_flip_vertical=False, enable_flip_diagonal=True
    )
    assert share["horizontal"] == share["vertical"] == 0
    assert share["diagonal"] == pytest.approx(0.5, abs=0.08)


# Rotation


@boxes
@pytest.mark.parametrize("angle_deg", [90.0, -90.0, 180.0, 270.0])
def test_box_after_quarter_turns_lies_on_the_turned_image(box, angle_deg):
    target = make_target([box])
    image, moved = rotate(draw(target["rboxes"], (HEIGHT, WIDTH)), target, angle_deg)
    assert image.shape[-2:] == ((HEIGHT, WIDTH) if angle_deg == 180 else (WIDTH, HEIGHT))
    assert_drawn_exactly(image, moved)


def test_quarter_turn_is_clockwise_on_the_screen():
    image = torch.zeros(3, 4, 6)
    image[:, 0, 5] = 1  # top right
    turned, _ = rotate(image, make_target([]), 90.0)
    assert turned[0].nonzero().tolist() == [[5, 3]]  # bottom right


@boxes
def test_four_quarter_turns_give_the_sample_back(box):
    image, target = torch.rand(3, HEIGHT, WIDTH), make_target([box])
    again, back = image, target
    for _ in range(4):
        again, back = rotate(again, back, 90.0)
    assert torch.equal(again, image)
    torch.testing.assert_close(back["rboxes"], target["rboxes"], atol=1e-6, rtol=0)


@boxes
@pytest.mark.parametrize("angle_deg", [1.0, 33.0, -75.0, 120.0, -179.0])
def test_turned_box_lies_on_the_turned_image(box, angle_deg):
    target = make_target([box])
    image, moved = rotate(draw(target["rboxes"], (HEIGHT, WIDTH)), target, angle_deg)
    assert image.shape[-2:] == (HEIGHT, WIDTH)
    assert len(moved["rboxes"]) == 1
    assert_drawn_closely(image, moved, is_square=box[2] == box[3])


def test_small_turns_go_the_same_way_as_quarter_turns():
    image = draw(torch.tensor([BOXES["oblique"]]), (64, 64))
    quarter, _ = rotate(image, make_target([]), 90.0)
    nearly, _ = rotate(image, make_target([]), 89.99)
    assert (quarter - nearly).abs().max() < 0.02  # 0.01 degree moves a border pixel by 0.006 px


def test_uncovered_corners_are_zero():
    turned, _ = rotate(torch.ones(3, HEIGHT, WIDTH), make_target([]), 45.0)
    assert turned[:, 0, 0].tolist() == [0, 0, 0]
    assert turned[:, HEIGHT // 2, WIDTH // 2].tolist() == pytest.approx([1, 1, 1])


def test_rotation_moves_ignore_regions_like_objects():
    target = make_target([BOXES["steep"]], ignored=[BOXES["steep"]])
    _, moved = rotate(torch.zeros(3, HEIGHT, WIDTH), target, 20.0)
    assert moved["rboxes"][0, 4] == pytest.approx(math.radians(20) - 1.3)
    torch.testing.assert_close(moved["rboxes_ignore"], moved["rboxes"])


def test_integer_image_is_not_resampled():
    with pytest.raises(TypeError, match=r"floating-point to be resampled, got torch\.uint8"):
        rotate(torch.zeros(3, 4, 4, dtype=torch.uint8), make_target([]), 10.0)


def turned_angles(labels, rect_labels, **settings) -> list[float]:
    """Return by how many degrees 200 draws turn an image, read off a mark right of its centre."""
    section = PreprocessingSection(enable_random_rotate=True, **settings)
    generator = seeded_generator(1)
    target = make_target([[10.5, 10.5, 8, 2, 0.0]] * len(labels), labels=labels)
    image = torch.zeros(3, 21, 21, dtype=torch.float64)
    image[:, 10, 18] = 1.0
    angles = []
    for _ in range(200):
        turned, _ = random_rotate(image, target, section, rect_labels, generator)
        _, cx, cy, _ = moments(turned)
        angles.append(round(math.degrees(math.atan2(cy - 10.5, cx - 10.5)), 6))
    return angles


def test_probability_zero_never_turns():
    assert set(turned_angles([1], [], random_rotate_prob=0)) == {0.0}


def test_turns_fill_the_range_evenly():
    angles = turned_angles([1], [], random_rotate_prob=1, random_rotate_angle_range=40)
    # A mark one pixel wide is read to 1 degree; 200 draws miss an end by 4 at odds below 1e-4.
    assert -41 < min(angles) < -35
    assert 35 < max(angles) < 41


def test_probability_is_the_share_of_turned_samples():
    angles = turned_angles([1], [], random_rotate_prob=0.3)
    share = sum(angle != 0 for angle in angles) / len(angles)
    assert share == pytest.approx(0.3, abs=0.1)  # 3 standard deviations


def test_tile_with_a_rect_label_turns_by_quarters():
    angles = turned_angles([1, 3], [3], random_rotate_prob=1)
    assert set(angles) == {-90.0, 90.0, 180.0}
    assert angles.count(180.0) / 200 == pytest.approx(1 / 3, abs=0.1)  # 3 standard deviations


def test_rect_label_turns_stay_within_the_range():
    settings = {"random_rotate_prob": 1, "random_rotate_angle_range": 100}
    assert set(turned_angles([3], [3], **settings)) == {-90.0, 90.0}
    settings["random_rotate_angle_range"] = 80
    assert set(turned_angles([3], [3], **settings)) == {0.0}


# What stays visible


def test_object_with_its_centre_outside_becomes_ignored_or_goes():
    target = make_target(
        [
            [39.9, 10, 20, 4, 0.0],  # centre inside
            [40.1, 10, 20, 4, 0.0],  # centre outside, left half visible
            [60.0, 10, 20, 4, 0.0],  # outside, far
            [44.0, 44.0, 20, 4, -math.pi / 4],  # its level box meets the corner, the box does not
        ],
        labels=[1, 2, 3, 4],
    )
    kept = keep_visible(target, (40, 40))
    assert kept["labels"].tolist() == [1]
    assert kept["labels_ignore"].tolist() == [2]
    assert kept["rboxes_ignore"].tolist() == [[40.1, 10, 20, 4, 0.0]]


def test_ignore_region_out_of_sight_goes():
    target = make_target([], ignored=[[10, 10, 8, 4, 0.0], [-10, 10, 8, 4, 0.0]])
    kept = keep_visible(target, (40, 40))
    assert kept["rboxes_ignore"].tolist() == [[10, 10, 8, 4, 0.0]]


def test_a_lookalike_stays_one_while_a_part_is_visible():
    boxes = [[39.9, 10, 20, 4, 0.0], [40.1, 10, 20, 4, 0.0], [60.0, 10, 20, 4, 0.0]]
    lookalikes = torch.tensor(boxes, dtype=torch.float64)
    kept = keep_visible(make_target([]) | {"rboxes_lookalike": lookalikes}, (40, 40))
    assert torch.equal(kept["rboxes_lookalike"], lookalikes[:2])
    assert len(kept["rboxes"]) == len(kept["rboxes_ignore"]) == 0
    assert "rboxes_lookalike" not in keep_visible(make_target([]), (40, 40))


def test_rotation_drops_objects_whose_centre_leaves_the_canvas():
    corner = [3.0, 3.0, 6.0, 4.0, 0.0]
    _, moved = rotate(torch.zeros(3, 60, 60), make_target([corner]), 45.0)
    assert len(moved["rboxes"]) == len(moved["rboxes_ignore"]) == 0


# Crop


@boxes
def test_cropped_box_lies_on_the_cropped_image(box):
    target = make_target([box])
    image, moved = crop(draw(target["rboxes"], (HEIGHT, WIDTH)), target, (7, 5), (50, 60))
    assert image.shape == (3, 50, 60)
    assert_drawn_exactly(image, moved)


def test_random_crop_reaches_both_ends_and_keeps_short_axes():
    image = torch.arange(10.0).expand(3, 4, 10)
    generator = seeded_generator(0)
    starts, heights = set(), set()
    for _ in range(60):
        part, _ = random_crop(image, make_target([]), (8, 7), generator)
        starts.add(int(part[0, 0, 0]))
        heights.add(tuple(part.shape[-2:]))
    assert starts == {0, 1, 2, 3}
    assert heights == {(4, 7)}


# Resize


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("fixed", (2.0, 4.0)), ("pad", (2.0, 2.0)), ("keep_ratio", (2.0, 2.0)), ("crop", (1.0, 1.0))],
)
def test_resize_mode_decides_the_factors(mode, expected):
    section = PreprocessingSection(resize_mode=mode, target_size=(80, 80))
    assert resize_factors(section, (20, 40)) == expected


def test_scaled_image_fits_into_an_oblong_target():
    section = PreprocessingSection(resize_mode="pad", target_size=(30, 80))
    assert resize_factors(section, (60, 80)) == (0.5, 0.5)


@boxes
@pytest.mark.parametrize("factor", [2.0, 1.37, 0.5, 0.713])
def test_resized_box_lies_on_the_resized_image(box, factor):
    target = make_target([box])
    image, moved = resize(draw(target["rboxes"], (HEIGHT, WIDTH)), target, (factor, factor))
    assert image.shape[-2:] == (round(HEIGHT * factor), round(WIDTH * factor))
    assert_drawn_closely(image, moved, is_square=box[2] == box[3])


def test_stretched_level_box_lies_on_the_stretched_image():
    target = make_target([BOXES["level"]])
    image, moved = resize(draw(target["rboxes"], (HEIGHT, WIDTH)), target, (1.5, 0.8))
    assert_drawn_closely(image, moved)


def test_scale_maps_boxes_back_to_the_tile():
    target = make_target([BOXES["level"]], ignored=[BOXES["level"]])
    _, moved = resize(torch.zeros(3, HEIGHT, WIDTH), target, (1.37, 1.37))
    back = moved["rboxes"][:, :2] / moved["scale"]
    torch.testing.assert_close(back, target["rboxes"][:, :2])
    torch.testing.assert_close(moved["rboxes_ignore"], moved["rboxes"])


def test_factor_one_returns_the_same_pixels():
    image = torch.randint(0, 256, (3, 7, 9), dtype=torch.uint8)
    same, target = resize(image, make_target([]), (1.0, 1.0))
    assert torch.equal(same, image)
    assert target["scale"].tolist() == [1, 1]


# Normalisation and the whole way


def test_mean_colour_becomes_zero_and_one_std_one():
    section = PreprocessingSection(normalize_mean=(0.2, 0.4, 0.6), normalize_std=(0.2, 0.2, 0.4))
    image = torch.tensor([51, 102, 255], dtype=torch.uint8)[:, None, None]
    assert normalize(image, section).flatten().tolist() == pytest.approx([0, 0, 1], abs=1e-6)
    torch.testing.assert_close(normalize(image.double() / 255, section), normalize(image, section))


FULL = {
    "target_size": (96, 96),
    "enable_flip_diagonal": True,
    "enable_random_rotate": True,
    "random_rotate_prob": 0.7,
    "normalize_mean": (0.0, 0.0, 0.0),
    "normalize_std": (1.0, 1.0, 1.0),
}


@pytest.mark.parametrize("mode", ["fixed", "pad", "keep_ratio", "crop"])
def test_box_lies_on_the_image_after_all_training_transforms(mode):
    transform = TrainTransform(PreprocessingSection(resize_mode=mode, **FULL), {"ship": 1})
    target = make_target([[32.0, 31.0, 22.0, 9.0, 0.4]])
    image = draw(target["rboxes"], (64, 64))
    for seed in range(12):
        moved_image, moved = transform(image, target, (64, 64), seeded_generator(seed))
        assert moved_image.dtype == torch.float32
        assert_drawn_closely(moved_image.double(), moved)


def test_same_generator_seed_gives_the_same_sample():
    transform = TrainTransform(PreprocessingSection(**FULL), {"ship": 1})
    image = torch.randint(0, 256, (3, 64, 64), dtype=torch.uint8)
    target = make_target([[32.0, 31.0, 22.0, 9.0, 0.4]])
    torch.manual_seed(1)
    first, first_target = transform(image, target, (64, 64), seeded_generator(5))
    torch.manual_seed(2)
    second, second_target = transform(image, target, (64, 64), seeded_generator(5))
    other, _ = transform(image, target, (64, 64), seeded_generator(6))
    assert torch.equal(first, second)
    assert torch.equal(first_target["rboxes"], second_target["rboxes"])
    assert not torch.equal(first, other)


def test_crop_mode_cuts_large_tiles_in_training_only():
    section = PreprocessingSection(resize_mode="crop", target_size=(32, 48))
    image = torch.randint(0, 256, (3, 64, 64), dtype=torch.uint8)
    target = make_target([[60.0, 60.0, 6.0, 4.0, 0.0]])
    cut, _ = TrainTransform(section, {})(image, target, (64, 64), seeded_generator(0))
    whole, seen = EvalTransform(section)(image, target, (64, 64), seeded_generator(0))
    assert cut.shape == (3, 32, 48)
    assert whole.shape == (3, 64, 64)
    assert seen["rboxes"].tolist() == [[60.0, 60.0, 6.0, 4.0, 0.0]]


def test_evaluation_draws_nothing():
    transform = EvalTransform(PreprocessingSection(**FULL))
    image = torch.randint(0, 256, (3, 48, 48), dtype=torch.uint8)
    generator = seeded_generator(3)
    seen, target = transform(image, make_target([[24, 12, 8, 4, 0.1]]), (48, 48), generator)
    assert target["rboxes"].tolist() == [[48, 24, 16, 8, 0.1]]
    assert torch.equal(generator.get_state(), seeded_generator(3).get_state())
    assert seen.shape == (3, 96, 96)


def test_content_of_a_padded_tile_is_scaled_like_a_whole_tile():
    transform = EvalTransform(PreprocessingSection(resize_mode="keep_ratio", **FULL))
    target = make_target([[10, 10, 8, 4, 0.0]])
    seen, moved = transform(torch.zeros(3, 24, 32), target, (48, 48), seeded_generator(0))
    assert seen.shape == (3, 48, 64)
    assert moved["rboxes"].tolist() == [[20, 20, 16, 8, 0.0]]


@pytest.mark.parametrize("size", [(48, 48), (24, 32), (48, 7), (1, 1)], ids=str)
def test_pad_mode_fills_up_to_the_target_with_the_mean_colour(size):
    target = make_target([[3.0, 2.0, 4.0, 2.0, 0.1]])
    image = torch.randint(0, 256, (3, *size), dtype=torch.uint8)
    seen = {}
    for mode in ("pad", "keep_ratio"):
        section = PreprocessingSection(resize_mode=mode, target_size=(96, 64))
        seen[mode] = EvalTransform(section)(image, target, (48, 48), seeded_generator(0))
    padded, content = seen["pad"][0], seen["keep_ratio"][0]
    height, width = content.shape[1:]
    assert padded.shape == (3, 96, 64)
    assert torch.equal(padded[:, :height, :width], content)
    assert padded[:, height:].abs().sum() == padded[:, :, width:].abs().sum() == 0
    assert torch.equal(seen["pad"][1]["rboxes"], seen["keep_ratio"][1]["rboxes"])


def test_pad_mode_gives_training_tiles_of_one_shape_however_they_are_turned():
    settings = FULL | {"target_size": (64, 96)}
    transform = TrainTransform(
        PreprocessingSection(resize_mode="pad", random_rotate_rect_labels=("ship",), **settings),
        {"ship": 1},
    )
    target = make_target([[20.0, 20.0, 8.0, 4.0, 0.0]])  # a ship: quarter turns only
    shapes = set()
    for seed in range(16):
        image, _ = transform(torch.zeros(3, 48, 72), target, (48, 72), seeded_generator(seed))
        shapes.add(tuple(image.shape))
    assert shapes == {(3, 64, 96), (3, 96, 64)}


@pytest.mark.parametrize("mode", ["fixed", "keep_ratio", "crop"])
def test_other_modes_leave_padding_to_the_model(mode):
    section = PreprocessingSection(resize_mode=mode, target_size=(48, 48))
    image = torch.randint(0, 256, (3, 24, 32), dtype=torch.uint8)
    seen, _ = EvalTransform(section)(image, make_target([]), (48, 48), seeded_generator(0))
    assert torch.equal(seen, normalize(image, section))


@pytest.mark.parametrize("mode", ["fixed", "pad", "keep_ratio", "crop"])
def test_tile_without_boxes_passes_everything(mode):
    transform = TrainTransform(
        PreprocessingSection(resize_mode=mode, random_rotate_rect_labels=("ship",), **FULL),
        {"ship": 1},
    )
    for seed in range(8):
        image, target = transform(
            torch.zeros(3, 40, 30), make_target([]), (40, 40), seeded_generator(seed)
        )
        assert image.shape[0] == 3
        assert target["rboxes"].shape == target["rboxes_ignore"].shape == (0, 5)
        assert target["labels"].shape == target["labels_ignore"].shape == (0,)


def test_unknown_rect_label_is_a_config_error():
    section = PreprocessingSection(random_rotate_rect_labels=("shop",))
    with pytest.raises(ConfigError, match="rect_labels: no training object is a 'shop', did you"):
        TrainTransform(section, {"ship": 1, "plane": 2})
