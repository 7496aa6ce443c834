"""Box coders: from a prior box (or point) and a target to regression targets, and back.

Every coder has ``encode(priors, targets)`` and ``decode(priors, deltas)``; decoding what was
encoded gives the target. Both are differentiable.

Widths and heights are regressed as logarithms; a decoded side is at most 62.5 times (and at least
1 / 62.5 of) the prior's, so that an untrained head cannot overflow. In encoding, a side below
1e-6 px counts as 1e-6 px, which keeps the deltas of boxes without width or height finite; a prior
side of 0 px decodes to 0 px.
"""

from obbflow.models.coders.distance import DistanceAngleCoder
from obbflow.models.coders.horizontal import HorizontalDeltaCoder
from obbflow.models.coders.midpoint import MidpointOffsetCoder
from obbflow.models.coders.rotated import DeltaCoder

__all__ = ["DeltaCoder", "DistanceAngleCoder", "HorizontalDeltaCoder", "MidpointOffsetCoder"]
