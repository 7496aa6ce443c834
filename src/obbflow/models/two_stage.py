"""Two-stage detectors: proposals, then a head that looks at these regions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from obbflow.models.backbones import Backbone
from obbflow.models.batching import ImageSize
from obbflow.models.detector import Detector
from obbflow.models.fpn import FPN
from obbflow.models.roi_heads import RotatedRoIHead
from obbflow.models.roi_sampling import SampledRegions
from obbflow.models.rpn import RegionProposalNetwork
from obbflow.structures import Detections, Target


class TwoStageDetector(Detector):
    """Backbone, feature pyramid, region proposals, region head.

    Args:
        backbone: Images (B, 3, H, W) -> C2 .. C5.
        fpn: C2 .. C5 -> P2 .. P6.
        rpn: P2 .. P6 -> proposals.
        roi_head: P2 .. P6 and proposals -> losses or detections.
        size_divisor: Batches are padded to multiples of it.
    """

    def __init__(
        self,
        backbone: Backbone,
        fpn: FPN,
        rpn: RegionProposalNetwork,
        roi_head: RotatedRoIHead,
        *,
        size_divisor: int,
    ) -> None:
        super().__init__(backbone, fpn, size_divisor=size_divisor)
        self.rpn = rpn
        self.roi_head = roi_head

    def set_epoch(self, epoch: int) -> None:
        """Take the settings that are scheduled for an epoch, counted from 1."""
        self.roi_head.set_epoch(epoch)

    def losses(
        self, levels: Sequence[Tensor], targets: Sequence[Target], sizes: Sequence[ImageSize]
    ) -> dict[str, Tensor]:
        """Return two losses of each stage; the region head learns from sampled proposals."""
        proposed = self.rpn(levels)
        objectness_loss, rpn_box_loss = self.rpn.losses(proposed, targets, sizes)
        samples = [
            self.roi_head.sample_regions(boxes, target)
            for boxes, target in zip(self.rpn.propose(proposed, sizes), targets, strict=True)
        ]
        class_loss, box_loss = self.roi_head.losses(levels, samples)
        self.diagnostics = _diagnose(samples, targets)
        return {
            "loss_objectness": objectness_loss,
            "loss_rpn_box_reg": rpn_box_loss,
            "loss_classifier": class_loss,
            "loss_box_reg": box_loss,
        }

    def detect(self, levels: Sequence[Tensor], sizes: Sequence[ImageSize]) -> list[Detections]:
        """Return the detections of the region head on the best proposals."""
        proposals = self.rpn.propose(self.rpn(levels), sizes)
        return self.roi_head.detect(levels, proposals, sizes)


def _diagnose(samples: Sequence[SampledRegions], targets: Sequence[Target]) -> dict[str, Tensor]:
    """Return how regions were matched, and what the region head learnt from."""
    labels = torch.cat([piece.labels for piece in samples])
    foreground = (labels > 0).sum()
    matched = sum(len(torch.unique(piece.matched, dim=0)) for piece in samples)
    objects = sum(len(target["rboxes"]) for target in targets)
    counts = {
        f"roi_num_{kind}": torch.tensor(float(sum(piece.counts[kind] for piece in samples)))
        for kind in ("pos", "bg", "ignore")
    }
    return {
        **counts,
        "roi_sampled_fg": foreground.float(),
        "roi_sampled_bg": (len(labels) - foreground).float(),
        "roi_matched_gt": torch.tensor(float(matched)),
        "roi_match_rate": torch.tensor(matched / objects if objects else float("nan")),
    }
