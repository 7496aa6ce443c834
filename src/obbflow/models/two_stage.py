"""What two-stage detectors share: features, proposals, then a head that looks at regions."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from obbflow.models.backbones import Backbone
from obbflow.models.batching import is_channels_last, pad_batch
from obbflow.models.fpn import FPN
from obbflow.models.roi_heads import RotatedRoIHead
from obbflow.models.roi_sampling import SampledRegions
from obbflow.models.rpn import RegionProposalNetwork
from obbflow.structures import Detections, Target


class TwoStageDetector(nn.Module):
    """Backbone, feature pyramid, region proposals, region head.

    After a training step ``diagnostics`` holds counts of that step; they are no losses.

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
        super().__init__()
        self.size_divisor = size_divisor
        self.backbone = backbone
        self.fpn = fpn
        self.rpn = rpn
        self.roi_head = roi_head
        self.diagnostics: dict[str, Tensor] = {}

    def set_epoch(self, epoch: int) -> None:
        """Take the settings that are scheduled for an epoch, counted from 1."""
        self.roi_head.set_epoch(epoch)

    def forward(
        self, images: Sequence[Tensor], targets: Sequence[Target] | None = None
    ) -> dict[str, Tensor] | list[Detections]:
        """Return the losses of a batch in training mode, its detections in evaluation mode.

        Args:
            images: (3, H, W) float each, normalised; sizes may differ.
            targets: One an image, only in training mode.

        Returns:
            Losses (scalars) by name, or for each image its detections in its own px, best first.

        Raises:
            ValueError: If training gets no targets, or not one an image.
        """
        layout = is_channels_last(self.backbone)
        batch, sizes = pad_batch(images, self.size_divisor, channels_last=layout)
        levels = self.fpn(self.backbone(batch))
        proposed = self.rpn(levels)
        proposals = self.rpn.propose(proposed, sizes)
        if not self.training:
            return self.roi_head.detect(levels, proposals, sizes)
        if targets is None or len(targets) != len(images):
            raise ValueError("training needs one target an image")
        objectness_loss, rpn_box_loss = self.rpn.losses(proposed, targets, sizes)
        samples = [
            self.roi_head.sample_regions(boxes, target)
            for boxes, target in zip(proposals, targets, strict=True)
        ]
        class_loss, box_loss = self.roi_head.losses(levels, samples)
        self.diagnostics = _diagnose(samples, targets)
        return {
            "loss_objectness": objectness_loss,
            "loss_rpn_box_reg": rpn_box_loss,
            "loss_classifier": class_loss,
            "loss_box_reg": box_loss,
        }


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
