import math

import pytest
import torch
from hypothesis import given
from torch.nn.functional import grid_sample

from obbflow.ops import roi_align, roi_align_rotated
from strategies import PROPERTY, rbox_tensors

HEIGHT, WIDTH = 20, 30


def ramps():
    """Two channels that hold the x and the y of each pixel's centre."""
    x = (torch.arange(WIDTH, dtype=torch.float64) + 0.5).expand(HEIGHT, WIDTH)
    y = (torch.arange(HEIGHT, dtype=torch.float64) + 0.5)[:, None].expand(HEIGHT, WIDTH)
    return torch.stack([x, y])[None]


def noise(batch=2, channels=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, channels, HEIGHT, WIDTH, generator=generator, dtype=dtype)


def roi(*values):
    return torch.tensor([values], dtype=torch.float64)


@pytest.mark.parametrize("angle", [0.0, 0.5, -1.2, 3.0])
@pytest.mark.parametrize("sampling_ratio", [0, 1, 2, 3])
def test_bins_of_a_ramp_hold_the_position_of_their_centre(angle, sampling_ratio):
    pooled = roi_align_rotated(
        ramps(), roi(0, 28.0, 20.0, 12.0, 8.0, angle), (2, 3), 0.5, sampling_ratio
    )
    u = torch.tensor([-2.0, 0.0, 2.0], dtype=torch.float64)  # along w, in feature px
    v = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)  # along h
    x = 14 + u * math.cos(angle) - v * math.sin(angle)
    y = 10 + u * math.sin(angle) + v * math.cos(angle)
    torch.testing.assert_close(pooled[0], torch.stack([x, y]), rtol=0, atol=1e-12)


def test_counter_clockwise_reads_the_angle_the_other_way():
    features = noise()
    clockwise = roi_align_rotated(features, roi(1, 14, 9, 10, 5, 0.4), 4, 1.0)
    other = roi_align_rotated(features, roi(1, 14, 9, 10, 5, -0.4), 4, 1.0, clockwise=False)
    assert torch.equal(clockwise, other)


def test_not_aligned_reads_pixels_at_their_corner_and_widens_small_rois():
    features = noise()
    shifted = roi_align_rotated(features, roi(0, 14.5, 9.5, 10, 5, 0.4), 3, 1.0, 2)
    first = roi_align_rotated(features, roi(0, 14, 9, 10, 5, 0.4), 3, 1.0, 2, aligned=False)
    torch.testing.assert_close(first, shifted)
    small, one_pixel = (
        roi_align_rotated(features, roi(0, 14, 9, side, side, 0.4), 3, 1.0, 2, aligned=False)
        for side in (0.2, 1.0)
    )
    assert torch.equal(small, one_pixel)


@PROPERTY
@given(boxes=rbox_tensors(max_size=5, span=60.0))
@pytest.mark.parametrize("sampling_ratio", [2, 0])
def test_pooling_equals_the_mean_of_grid_samples(boxes, sampling_ratio):
    """The slow, obvious way: sample each bin's points with ``grid_sample``, then average."""
    features, size = noise(batch=1), 4
    rois = torch.cat([torch.zeros(len(boxes), 1, dtype=torch.float64), boxes], dim=1)
    actual = roi_align_rotated(features, rois, size, 0.5, sampling_ratio)

    for box, pooled in zip(boxes, actual, strict=True):
        cx, cy, w, h, angle = box
        across, down = (sampling_ratio or math.ceil(side / 2 / size) for side in (w, h))
        u, v = (
            (torch.arange(size * count, dtype=torch.float64) + 0.5) / (size * count) - 0.5
            for count in (across, down)
        )
        u, v = u * w / 2, v[:, None] * h / 2
        x = cx / 2 - 0.5 + u * angle.cos() - v * angle.sin()
        y = cy / 2 - 0.5 + u * angle.sin() + v * angle.cos()
        grid = torch.stack([2 * x / (WIDTH - 1) - 1, 2 * y / (HEIGHT - 1) - 1], dim=2)[None]
        samples = grid_sample(features, grid, padding_mode="border", align_corners=True)
        samples = samples * ((x >= -1) & (x <= WIDTH) & (y >= -1) & (y <= HEIGHT))
        expected = samples[0].reshape(3, size, down, size, across).mean(dim=(2, 4))
        torch.testing.assert_close(pooled, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_gradient_to_the_features_is_the_numerical_one(sampling_ratio):
    features = noise(batch=2, channels=1)[:, :, :5, :6].clone().requires_grad_()
    rois = torch.cat([roi(1, 3, 2, 4, 2, 0.4), roi(0, 0, 0, 3, 3, 2.0), roi(1, 5, 5, 9, 1, -1.0)])
    assert torch.autograd.gradcheck(
        lambda values: roi_align_rotated(values, rois, 2, 1.0, sampling_ratio), (features,)
    )


def test_second_derivatives_are_refused():
    features = noise().requires_grad_()
    pooled = roi_align_rotated(features, roi(1, 14, 9, 10, 5, 0.4), 2, 1.0)
    (gradient,) = torch.autograd.grad(pooled.square().sum(), features, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_images_of_the_batch_are_kept_apart():
    features = torch.stack([torch.full((1, 8, 8), value) for value in (1.0, 2.0, 3.0)])
    rois = torch.tensor([[2.0, 4, 4, 4, 2, 0.1], [0, 4, 4, 4, 2, 0.1], [1, 4, 4, 9, 2, 0.1]])
    pooled = roi_align_rotated(features, rois, 2, 1.0)  # two sizes: two groups of sample counts
    torch.testing.assert_close(pooled.mean(dim=(1, 2, 3)), torch.tensor([3.0, 1.0, 2.0]))


def test_roi_outside_the_map_is_0_and_at_its_rim_takes_the_border():
    features = torch.ones(1, 1, 8, 8)
    outside = roi_align_rotated(features, torch.tensor([[0, -40.0, 4, 4, 4, 0]]), 2, 1.0, 2)
    rim = roi_align_rotated(features, torch.tensor([[0, -0.25, 4, 0.4, 4, 0]]), 2, 1.0, 2)
    assert (outside == 0).all()
    torch.testing.assert_close(rim, torch.ones_like(rim))


@pytest.mark.parametrize(("w", "h"), [(0.0, 5.0), (5.0, 0.0), (0.0, 0.0)])
def test_adaptive_sampling_of_a_roi_without_extent_is_0(w, h):
    pooled = roi_align_rotated(
        torch.ones(1, 2, 8, 8), torch.tensor([[0, 4.0, 4, w, h, 0.3]]), 3, 1.0
    )
    assert torch.equal(pooled, torch.zeros(1, 2, 3, 3))


@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_zero_rois_give_zero_features_that_take_a_gradient(sampling_ratio):
    features = noise(dtype=torch.float32).requires_grad_()
    pooled = roi_align_rotated(features, torch.zeros(0, 6), (7, 5), 0.25, sampling_ratio)
    assert pooled.shape == (0, 3, 7, 5)
    pooled.sum().backward()
    assert torch.equal(features.grad, torch.zeros_like(features))


def pool_and_gradient(features, sampling_ratio=0):
    """Pool twelve rois of several sizes; return the result and a gradient of the features."""
    rois = torch.cat([roi(n % 2, 10 + n, 8, 6, 3 + n % 3, 0.3 * n) for n in range(12)])
    features = features.clone().requires_grad_()
    pooled = roi_align_rotated(features, rois, 3, 1.0, sampling_ratio)
    weights = torch.linspace(-1, 1, pooled.numel(), dtype=pooled.dtype).view_as(pooled)
    return pooled.detach(), torch.autograd.grad(pooled, features, weights)[0]


@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_chunks_change_nothing(monkeypatch, sampling_ratio):
    whole, gradient = pool_and_gradient(noise(), sampling_ratio)
    monkeypatch.setattr(roi_align, "_SAMPLES_PER_CHUNK", 20)  # less than a roi
    pooled, gradient_of_chunks = pool_and_gradient(noise(), sampling_ratio)
    assert torch.equal(pooled, whole)
    torch.testing.assert_close(gradient_of_chunks, gradient, rtol=0, atol=1e-12)  # other order


def test_result_and_gradient_are_the_same_bits_each_time():
    features = noise(channels=64, dtype=torch.float32)
    first, second = pool_and_gradient(features), pool_and_gradient(features)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_layout_of_the_features_changes_no_value_and_is_that_of_the_gradient():
    first, gradient = pool_and_gradient(noise())
    last, last_gradient = pool_and_gradient(noise().contiguous(memory_format=torch.channels_last))
    assert torch.equal(first, last)
    assert torch.equal(gradient, last_gradient)
    assert gradient.is_contiguous()
    assert last_gradient.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_summed_in_float32_and_rounded_once(dtype):
    features = noise(dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pooled, gradient = pool_and_gradient(features)
    expected, exact_gradient = pool_and_gradient(features.float())
    assert pooled.dtype == gradient.dtype == dtype
    assert torch.equal(pooled, expected.to(dtype))
    step = torch.finfo(dtype).eps  # the gradient that comes in is rounded too
    torch.testing.assert_close(gradient.float(), exact_gradient, rtol=step, atol=step)


@pytest.mark.parametrize(
    ("features", "rois", "size", "ratio", "message"),
    [
        ((3, 8, 8), (1, 6), 2, 0, r"features must be \(B, C, H, W\), got \(3, 8, 8\)"),
        ((1, 3, 8, 8), (1, 5), 2, 0, r"rois must be \(R, 6\).*got \(1, 5\)"),
        ((1, 3, 8, 8), (1, 6), 0, 0, r"output_size must be positive.*got \(0, 0\)"),
        ((1, 3, 8, 8), (1, 6), 2, -1, "sampling_ratio not negative.*-1"),
    ],
)
def test_wrong_shapes_are_refused(features, rois, size, ratio, message):
    with pytest.raises(ValueError, match=message):
        roi_align_rotated(torch.zeros(features), torch.zeros(rois), size, 1.0, ratio)


@pytest.mark.parametrize("image", [-1.0, 2.0, math.nan])
def test_rois_of_an_image_that_is_not_there_are_refused(image):
    with pytest.raises(ValueError, match=r"batch indices.*0\.\.1|finite"):
        roi_align_rotated(noise(), roi(image, 4, 4, 4, 2, 0), 2, 1.0)
