"""Level boxes from level priors by four deltas: Faster R-CNN's proposals."""

from dataclasses import dataclass

import torch
from torch import Tensor

from obbflow.geometry import rbox_to_hbox
from obbflow.models.coders.deltas import decode_hboxes, encode_hboxes, normalise, restore


@dataclass(frozen=True)
class HorizontalDeltaCoder:
    """Enclosing boxes of rotated targets from horizontal priors by (dx, dy, dw, dh).

    Source:
        Girshick et al., Rich feature hierarchies for accurate object detection and semantic
        segmentation, CVPR 2014, appendix C.
    """

    means: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    stds: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)

    def encode(self, priors: Tensor, targets: Tensor) -> Tensor:
        """Return deltas (N, 4) of the boxes around rboxes (N, 5) from prior hboxes (N, 4)."""
        return normalise(encode_hboxes(priors, rbox_to_hbox(targets)), self.means, self.stds)

    def decode(
        self, priors: Tensor, deltas: Tensor, image_size: tuple[int, int] | None = None
    ) -> Tensor:
        """Return hboxes (N, 4) of deltas (N, 4) from prior hboxes (N, 4).

        ``image_size`` (height, width) cuts them at the border; one outside keeps no area.
        """
        centre, size = decode_hboxes(priors, restore(deltas, self.means, self.stds))
        hboxes = torch.cat([centre - size / 2, centre + size / 2], dim=1)
        if image_size is None:
            return hboxes
        height, width = image_size
        limit = hboxes.new_tensor([width, height, width, height])
        return torch.minimum(hboxes.clamp(min=0), limit)
