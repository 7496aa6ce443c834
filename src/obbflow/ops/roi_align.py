"""Rotated RoIAlign in plain torch.

Pooling is linear in the features: each bin is a weighted sum of pixels, and the weights depend on
the roi alone. The sum is one ``embedding_bag`` over the pixels of all images, which never stores
a sampled value. Its gradient is the same sum the other way: each pixel gathers from the bins that
it went into. Pixels and weights of a chunk of bins are made when needed, once forward and once
backward: beyond features, result, their gradients and one copy of each, memory is bounded.

Shapes: B images, C channels, H and W of the feature map, R rois, h and w of the output,
Q = R h w bins of all rois and q of a chunk, S sample points of a chunk.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

# Sample points in one go. Times differ by less than noise from 1 << 14 to 1 << 20 (measured); with
# 2 x 2 samples a bin and 256 channels the sums of a chunk take 16 MiB.
_SAMPLES_PER_CHUNK = 1 << 16


def roi_align_rotated(
    features: Tensor,
    rois: Tensor,
    output_size: int | tuple[int, int],
    spatial_scale: float,
    sampling_ratio: int = 0,
    aligned: bool = True,
    clockwise: bool = True,
) -> Tensor:
    """Return the features of rotated regions, resampled to one size.

    Each roi is divided into h x w bins; a bin is the mean of a grid of bilinear samples inside
    it. A sample up to one pixel outside the map takes the border's value, farther out 0.
    Gradients, of first order, flow to ``features``, not to ``rois``. Both layouts of
    ``features``, channels first and channels last, give the same values; the second spares a
    copy.

    Args:
        features: (B, C, H, W) float.
        rois: (R, 6) float, (batch index, cx, cy, w, h, angle), in image px and radians; R may
            be 0.
        output_size: h and w, or one number for both.
        spatial_scale: Feature px per image px, 1 / stride.
        sampling_ratio: Samples a bin along each axis; 0 takes one for every feature px begun
            (none, and so the value 0, for a roi without extent).
        aligned: Read pixel (0, 0) at its centre (0.5, 0.5). When False, at (0, 0), and rois have
            at least one feature px a side, as in the first RoIAlign.
        clockwise: A positive angle turns the w axis clockwise on the screen. False reads the
            angle the other way.

    Returns:
        (R, C, h, w), rows of a bin along the roi's h axis, dtype of ``features``. Half types, as
        under autocast, are summed in float32 and rounded once.

    Raises:
        ValueError: If a shape is wrong or a batch index is not an image of ``features``.

    Source:
        He et al., "Mask R-CNN", 2017, section 3 (RoIAlign); Ding et al., "Learning RoI
        Transformer", 2019, section 3.3 (rotated RoIs).

    Example:
        >>> ramp = torch.arange(8.0).expand(1, 1, 8, 8)  # each pixel holds its x
        >>> rois = torch.tensor([[0.0, 4.0, 4.0, 4.0, 2.0, 0.0]])
        >>> roi_align_rotated(ramp, rois, (1, 2), 1.0).tolist()
        [[[[2.5, 4.5]]]]
    """
    height, width = (output_size, output_size) if isinstance(output_size, int) else output_size
    _check_arguments(features, rois, (height, width), sampling_ratio)
    images, boxes = rois[:, 0].int(), _at_least_float32(rois[:, 1:].detach())
    boxes = _boxes_on_features(boxes, spatial_scale, aligned, clockwise)
    counts = _sample_counts(boxes, (height, width), sampling_ratio)
    grid = _SampleGrid(images, boxes, counts, (height, width), features.shape)
    pooled = _SumOfPixels.apply(_at_least_float32(features), grid)
    return pooled.to(features.dtype)


class _SampleGrid(NamedTuple):
    """Where the bins of all rois take their samples."""

    images: Tensor  # (R,) int32
    boxes: Tensor  # (R, 5) rboxes in feature px, where pixel centres are whole numbers
    counts: Tensor  # (R, 2) int64, samples a bin down the h axis and across the w axis
    output_size: tuple[int, int]  # h, w
    shape: torch.Size  # (B, C, H, W) of the features


class _WeightedPixels(NamedTuple):
    """The pixels whose weighted sums are the bins of a chunk: a sparse matrix by rows."""

    pixels: Tensor  # (4 S,) int32, rows of the (B H W, C) features
    weights: Tensor  # (4 S,)
    starts: Tensor  # (q + 1,) int32, where each bin begins, and the end


class _SumOfPixels(torch.autograd.Function):
    """Features (B, C, H, W) -> bins (R, C, h, w), one chunk of bins at a time."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, grid: _SampleGrid) -> Tensor:  # noqa: ANN401
        ctx.grid = grid
        ctx.is_channels_last = features.is_contiguous(memory_format=torch.channels_last)
        channels, (height, width) = features.shape[1], grid.output_size
        if ctx.is_channels_last:
            pixels = features.permute(0, 2, 3, 1).reshape(-1, channels)
        else:
            pixels = _transposed(features.flatten(2)).flatten(0, 1)
        bins = pixels.new_empty(len(grid.boxes) * height * width, channels)
        for chunk in _chunks_of_bins(grid):
            index, weights, starts = _weigh_pixels(grid, chunk)
            bins[chunk] = _sums(pixels, index, weights, starts)
        return bins.view(-1, height, width, channels).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        grid = ctx.grid
        images, channels, height, width = grid.shape
        grad_bins = grad.permute(0, 2, 3, 1).reshape(-1, channels)
        grad_pixels = grad.new_zeros(images * height * width, channels)
        for chunk in _chunks_of_bins(grid):
            index, weights, starts = _weigh_pixels(grid, chunk)
            index, order = index.sort(stable=True)
            touched, lengths = index.unique_consecutive(return_counts=True)
            rows = torch.arange(chunk.start, chunk.stop, dtype=torch.int32, device=index.device)
            rows = rows.repeat_interleave(starts.diff())[order]
            sums = _sums(grad_bins, rows, weights[order], _starts(lengths))
            grad_pixels.index_add_(0, touched, sums)
        if ctx.is_channels_last:
            return grad_pixels.view(images, height, width, channels).permute(0, 3, 1, 2), None
        return _transposed(grad_pixels.view(images, -1, channels)).view(grid.shape), None


def _sums(rows: Tensor, index: Tensor, weights: Tensor, starts: Tensor) -> Tensor:
    """Return the weighted sums (q, C) of rows of a (.., C) matrix, none where a bag is empty."""
    return embedding_bag(
        index,
        rows,
        starts,
        mode="sum",
        per_sample_weights=weights.to(rows.dtype),
        include_last_offset=True,
    )


def _transposed(matrices: Tensor) -> Tensor:
    """Return (B, n, m) from (B, m, n), in memory.

    Alone, a matrix is copied block by block, two to three times as fast as a batch (measured).
    """
    result = matrices.new_empty(len(matrices), matrices.shape[2], matrices.shape[1])
    for target, matrix in zip(result, matrices, strict=True):
        target.copy_(matrix.T)
    return result


def _at_least_float32(values: Tensor) -> Tensor:
    """Return half types as float32, others as they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _check_arguments(
    features: Tensor, rois: Tensor, output_size: tuple[int, int], sampling_ratio: int
) -> None:
    """Raise ValueError for wrong shapes, sizes and batch indices."""
    if features.ndim != 4:
        raise ValueError(f"features must be (B, C, H, W), got {tuple(features.shape)}")
    if rois.ndim != 2 or rois.shape[1] != 6:
        raise ValueError(
            f"rois must be (R, 6) as (batch index, cx, cy, w, h, angle), got {tuple(rois.shape)}"
        )
    if min(output_size) < 1 or sampling_ratio < 0:
        raise ValueError(
            "output_size must be positive and sampling_ratio not negative, "
            f"got {output_size} and {sampling_ratio}"
        )
    if not rois.isfinite().all():
        raise ValueError("rois must be finite: some value is NaN or infinite")
    if len(rois) and not (rois[:, 0].min() >= 0 and rois[:, 0].max() < len(features)):
        raise ValueError(f"batch indices of rois must be within 0..{len(features) - 1}")


def _boxes_on_features(
    boxes: Tensor, spatial_scale: float, aligned: bool, clockwise: bool
) -> Tensor:
    """Return (R, 5) boxes in units of feature pixels, where pixel centres are whole numbers."""
    centre, sides, angle = boxes.split([2, 2, 1], dim=1)
    centre, sides = centre * spatial_scale, sides * spatial_scale
    if aligned:
        centre = centre - 0.5
    else:
        sides = sides.clamp(min=1)
    return torch.cat([centre, sides, angle if clockwise else -angle], dim=1)


def _sample_counts(boxes: Tensor, output_size: tuple[int, int], sampling_ratio: int) -> Tensor:
    """Return (R, 2) int64: samples a bin along the h and along the w axis."""
    if sampling_ratio:
        return boxes.new_full((len(boxes), 2), sampling_ratio, dtype=torch.int64)
    sides = boxes[:, [3, 2]]  # h, w
    return (sides / sides.new_tensor(output_size)).ceil().long()


def _chunks_of_bins(grid: _SampleGrid) -> Iterator[slice]:
    """Yield consecutive bins with about as many samples as a chunk may have."""
    height, width = grid.output_size
    samples = grid.counts.prod(dim=1).repeat_interleave(height * width)
    chunk = samples.cumsum(0).div(_SAMPLES_PER_CHUNK, rounding_mode="floor")
    start = 0
    for size in chunk.unique_consecutive(return_counts=True)[1].tolist():
        yield slice(start, start + size)
        start += size


def _weigh_pixels(grid: _SampleGrid, chunk: slice) -> _WeightedPixels:
    """Return the pixels and weights whose sum is the mean of the samples, for each bin."""
    _, _, height, width = grid.shape
    bins = torch.arange(chunk.start, chunk.stop, device=grid.boxes.device)
    rois = bins // (grid.output_size[0] * grid.output_size[1])
    samples = grid.counts[rois].prod(dim=1)  # (q,)
    bin_of = torch.arange(len(bins), device=bins.device).repeat_interleave(samples)  # (S,)
    starts = _starts(samples)

    x, y = _sample_points(grid, bins, bin_of, starts)
    is_inside = (x >= -1) & (x <= width) & (y >= -1) & (y <= height)
    share = is_inside.to(x.dtype) / samples[bin_of]
    x, y = x.clamp(0, width - 1), y.clamp(0, height - 1)
    left, top = x.int(), y.int()
    to_right, to_bottom = x - left, y - top
    upper, lower = (1 - to_bottom) * share, to_bottom * share
    step_right = (left < width - 1).int()  # on the last column or row the weight is 0
    step_down = (top < height - 1).int() * width

    first = ((grid.images * height)[rois[bin_of]] + top) * width + left
    below = first + step_down
    index = torch.stack([first, first + step_right, below, below + step_right], dim=1)
    to_left = 1 - to_right
    weights = [upper * to_left, upper * to_right, lower * to_left, lower * to_right]
    return _WeightedPixels(index.flatten(), torch.stack(weights, dim=1).flatten(), starts * 4)


def _sample_points(
    grid: _SampleGrid, bins: Tensor, bin_of: Tensor, starts: Tensor
) -> tuple[Tensor, Tensor]:
    """Return x and y (S,) of the samples of some bins, in feature px."""
    height, width = grid.output_size
    rois = bins // (height * width)
    row, column = bins // width % height, bins % width
    cx, cy, w, h, angle = grid.boxes[rois].unbind(dim=1)  # (q,)
    down, across = grid.counts[rois].unbind(dim=1)
    u, v = w * column / width - w / 2, h * row / height - h / 2  # the bin's corner in the roi
    step_u, step_v = w / (width * across), h / (height * down)
    of_bins = torch.stack([cx, cy, angle.cos(), angle.sin(), u, v, step_u, step_v])
    cx, cy, cos, sin, u, v, step_u, step_v = of_bins[:, bin_of]  # (S,)

    across = across.int()[bin_of]
    number = torch.arange(len(bin_of), dtype=torch.int32, device=bins.device) - starts[bin_of]
    row = number // across
    u = u + (number - row * across + 0.5) * step_u
    v = v + (row + 0.5) * step_v
    return cx + u * cos - v * sin, cy + u * sin + v * cos


def _starts(lengths: Tensor) -> Tensor:
    """Return where consecutive runs begin, and the end: (n + 1,) int32 from (n,) lengths."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int()
