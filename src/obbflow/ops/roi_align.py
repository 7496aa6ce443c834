"""Rotated RoIAlign in plain torch.

Shapes: B images, C channels, H and W of the feature map, R rois, h and w of the output,
S sample points a bin, Q = R h w bins. Pooling is linear in the features: each bin is a weighted
sum of pixels, and the weights depend on the roi alone. The sum is one ``embedding_bag`` over the
pixels of all images, which never stores a sampled value.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

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
    _check_arguments(features, rois, height, width, sampling_ratio)
    batch, channels = features.shape[:2]
    images = rois[:, 0].long()
    boxes = _boxes_on_features(rois[:, 1:].detach(), spatial_scale, aligned, clockwise)
    pixels = features.permute(0, 2, 3, 1).reshape(-1, channels)  # (B H W, C)
    counts = _sample_counts(boxes, height, width, sampling_ratio)  # (R, 2)

    pooled, order = [], []
    for rows in _groups_of_equal_counts(counts):
        down, across = counts[rows[0]].tolist()
        samples = _bin_samples(boxes[rows], height, width, down, across)  # (r, h, w, S, 2)
        index, weight = _corner_weights(samples, images[rows], features.shape)
        bins = F.embedding_bag(
            index.flatten(0, 2),
            pixels,
            mode="sum",
            per_sample_weights=weight.flatten(0, 2).to(pixels.dtype),
        )
        pooled.append(bins.reshape(len(rows), height, width, channels))
        order.append(rows)
    if not pooled:
        return features.new_zeros(len(rois), channels, height, width)
    inverse = torch.cat(order).argsort()
    return torch.cat(pooled)[inverse].permute(0, 3, 1, 2)
