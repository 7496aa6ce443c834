"""What the coders share: sides as logarithms, deltas of level boxes, means and deviations."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MAX_LOG_RATIO = abs(math.log(16 / 1000))
_MIN_SIDE = 1e-6  # px; far below any object, far above the smallest float32


def shift_over_size(shift: Tensor, size: Tensor) -> Tensor:
    """Return shifts (N, 2) of a centre or corner in units of a box's sides (N, 2)."""
    return shift / size.clamp(min=_MIN_SIDE)


def log_ratio(size: Tensor, prior_size: Tensor) -> Tensor:
    """Return (dw, dh) (N, 2): the logarithm of sides (N, 2) over those of the prior."""
    return (size.clamp(min=_MIN_SIDE) / prior_size.clamp(min=_MIN_SIDE)).log()


def scale_size(prior_size: Tensor, deltas: Tensor) -> Tensor:
    """Return sides (N, 2) from those of the prior and (dw, dh) (N, 2), kept within the limit."""
    return prior_size * deltas.clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()


def centre_and_size(hboxes: Tensor) -> tuple[Tensor, Tensor]:
    """Return centres (N, 2) and sides (N, 2) of hboxes (N, 4)."""
    return (hboxes[:, :2] + hboxes[:, 2:]) / 2, hboxes[:, 2:] - hboxes[:, :2]


def encode_hboxes(priors: Tensor, hboxes: Tensor) -> Tensor:
    """Return (dx, dy, dw, dh) (N, 4) of hboxes (N, 4) from prior hboxes (N, 4)."""
    centre, size = centre_and_size(hboxes)
    prior_centre, prior_size = centre_and_size(priors)
    shift = shift_over_size(centre - prior_centre, prior_size)
    return torch.cat([shift, log_ratio(size, prior_size)], dim=1)


def decode_hboxes(priors: Tensor, deltas: Tensor) -> tuple[Tensor, Tensor]:
    """Return centres and sides, both (N, 2), of deltas (N, 4) from prior hboxes (N, 4)."""
    prior_centre, prior_size = centre_and_size(priors)
    centre = prior_centre + deltas[:, :2] * prior_size
    return centre, scale_size(prior_size, deltas[:, 2:])


def turn(vectors: Tensor, angle: Tensor) -> Tensor:
    """Return (N, 2) vectors turned by (N,) angles, clockwise on the screen."""
    cos, sin = angle.cos(), angle.sin()
    x, y = vectors.unbind(dim=1)
    return torch.stack([cos * x - sin * y, sin * x + cos * y], dim=1)


def normalise(deltas: Tensor, means: Sequence[float], stds: Sequence[float]) -> Tensor:
    """Return deltas (N, k) less their means, over their standard deviations, both (k,)."""
    return (deltas - deltas.new_tensor(means)) / deltas.new_tensor(stds)


def restore(deltas: Tensor, means: Sequence[float], stds: Sequence[float]) -> Tensor:
    """Return what :func:`normalise` was given."""
    return deltas * deltas.new_tensor(stds) + deltas.new_tensor(means)
