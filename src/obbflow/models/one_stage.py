"""One-stage detectors: a head looks at every cell of the features."""

from collections.abc import Sequence

from torch import Tensor

from obbflow.models.backbones import Backbone
from obbflow.models.batching import ImageSize
from obbflow.models.dense_head import DenseHead
from obbflow.models.detector import Detector
from obbflow.models.fpn import FPN
from obbflow.structures import Detections, Target


class OneStageDetector(Detector):
    """Backbone, feature pyramid, dense head.

    Args:
        backbone: Images (B, 3, H, W) -> C2 .. C5.
        fpn: C2 .. C5 -> P3 .. P7.
        head: P3 .. P7 -> losses or detections.
        size_divisor: Batches are padded to multiples of it.
    """

    def __init__(self, backbone: Backbone, fpn: FPN, head: DenseHead, *, size_divisor: int) -> None:
        super().__init__(backbone, fpn, size_divisor=size_divisor)
        self.head = head

    def set_epoch(self, epoch: int) -> None:
        """Take the settings that are scheduled for an epoch, counted from 1."""
        self.head.set_epoch(epoch)

    def losses(
        self, levels: Sequence[Tensor], targets: Sequence[Target], sizes: Sequence[ImageSize]
    ) -> dict[str, Tensor]:
        """Return the losses of the head."""
        losses = self.head.losses(self.head(levels), targets, sizes)
        self.diagnostics = self.head.diagnostics
        return losses

    def detect(self, levels: Sequence[Tensor], sizes: Sequence[ImageSize]) -> list[Detections]:
        """Return the detections of the head."""
        return self.head.detect(self.head(levels), sizes)
