"""Rotated RoIAlign in plain torch.

Shapes: B images, C channels, H and W of the feature map, R rois, h and w of the output,
S sample points a bin, Q = R h w bins. Pooling is linear in the features: each bin is a weighted
sum of pixels, and the weights depend on the roi alone. The sum is one ``embedding_bag`` over the
pixels of all images, which never stores a sampled value.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

_SAMPLES_PER_CHUNK = 1 << 20  # sample points in one go: 16 bytes of index and weight, 4 corners


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
    Gradients flow to ``features``, not to ``rois``.

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
        (R, C, h, w), rows of a bin along the roi's h axis, dtype of ``features``.

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
    channels = features.shape[1]
    images, boxes = rois[:, 0].long(), rois[:, 1:].detach()
    boxes = _boxes_on_features(boxes, spatial_scale, aligned, clockwise)
    counts = _sample_counts(boxes, (height, width), sampling_ratio)  # (R, 2), down and across
    pixels = features.permute(0, 2, 3, 1).reshape(-1, channels)  # (B H W, C)

    groups = _groups_of_equal_counts(counts, height * width)
    pooled = [pixels[:0].reshape(0, height, width, channels)]  # ties 0 rois to the features
    for rows in groups:
        down, across = counts[rows[0]].tolist()
        if down == 0 or across == 0:
            pooled.append(pixels.new_zeros(len(rows), height, width, channels))
            continue
        x, y = _sample_points(boxes[rows], (height, width), (down, across))
        index, weight = _corners_and_weights(x, y, images[rows], features.shape)
        weight = weight.to(pixels.dtype)
        bins = embedding_bag(index, pixels, mode="sum", per_sample_weights=weight)
        pooled.append(bins.reshape(len(rows), height, width, channels))
    inverse = torch.cat(groups).argsort() if groups else images
    return torch.cat(pooled)[inverse].permute(0, 3, 1, 2)


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


def _groups_of_equal_counts(counts: Tensor, bins_per_roi: int) -> list[Tensor]:
    """Return rows of ``counts`` grouped by equal values, in chunks of bounded sample number."""
    kinds, kind_of_row = counts.unique(dim=0, return_inverse=True)
    groups: list[Tensor] = []
    for kind, (down, across) in enumerate(kinds.tolist()):
        rows = (kind_of_row == kind).nonzero().squeeze(1)
        samples_per_roi = max(1, down * across) * bins_per_roi
        groups.extend(rows.split(max(1, _SAMPLES_PER_CHUNK // samples_per_roi)))
    return groups


def _sample_points(
    boxes: Tensor, output_size: tuple[int, int], counts: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Return x and y (r, h w, S) of the sample points of r boxes on the feature map."""
    (height, width), (down, across) = output_size, counts
    cx, cy, w, h, angle = boxes[:, :, None, None].unbind(dim=1)  # (r, 1, 1)
    rows = _fractions(height * down, boxes)[:, None]
    columns = _fractions(width * across, boxes)
    along_h, along_w = h * rows, w * columns  # (r, h down, 1), (r, 1, w across)
    x = cx + along_w * angle.cos() - along_h * angle.sin()
    y = cy + along_w * angle.sin() + along_h * angle.cos()
    split = (len(boxes), height, down, width, across)
    x, y = (v.reshape(split).transpose(2, 3).flatten(3).flatten(1, 2) for v in (x, y))
    return x, y


def _fractions(count: int, like: Tensor) -> Tensor:
    """Return the middles (count,) of equal parts of a side that runs from -1/2 to 1/2."""
    return (torch.arange(count, dtype=like.dtype, device=like.device) + 0.5) / count - 0.5


def _corners_and_weights(
    x: Tensor, y: Tensor, images: Tensor, shape: torch.Size
) -> tuple[Tensor, Tensor]:
    """Return pixel rows and weights (r h w, 4 S) whose weighted sum is the mean of the samples."""
    _, _, height, width = shape
    is_inside = (x >= -1) & (x <= width) & (y >= -1) & (y <= height)
    x, y = x.clamp(0, width - 1), y.clamp(0, height - 1)
    left, top = x.long(), y.long()
    right, bottom = (left + 1).clamp(max=width - 1), (top + 1).clamp(max=height - 1)
    to_right, to_bottom = x - left, y - top
    to_left, to_top = 1 - to_right, 1 - to_bottom

    first = images[:, None, None] * height  # rows of pixels before the image
    upper, lower = (first + top) * width, (first + bottom) * width
    index = torch.cat([upper + left, upper + right, lower + left, lower + right], dim=2)
    weight = torch.cat(
        [to_top * to_left, to_top * to_right, to_bottom * to_left, to_bottom * to_right], dim=2
    )
    weight = weight * is_inside.repeat(1, 1, 4) / x.shape[2]
    return index.flatten(0, 1), weight.flatten(0, 1)
