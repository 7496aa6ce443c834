"""What one-stage detectors share: features, then a head that looks at every cell of them."""

from collections.abc import Sequence

from torch import Tensor, nn

from obbflow.models.backbones import Backbone
from obbflow.models.batching import is_channels_last, pad_batch
from obbflow.models.dense_head import DenseHead
from obbflow.models.fpn import FPN
from obbflow.structures import Detections, Target


class OneStageDetector(nn.Module):
    """Backbone, feature pyramid, dense head.

    After a training step ``diagnostics`` holds counts of that step; they are no losses.

    Args:
        backbone: Images (B, 3, H, W) -> C2 .. C5.
        fpn: C2 .. C5 -> P3 .. P7.
        head: P3 .. P7 -> losses or detections.
        size_divisor: Batches are padded to multiples of it.
    """

    def __init__(self, backbone: Backbone, fpn: FPN, head: DenseHead, *, size_divisor: int) -> None:
        super().__init__()
        self.size_divisor = size_divisor
        self.backbone = backbone
        self.fpn = fpn
        self.head = head

    @property
    def diagnostics(self) -> dict[str, Tensor]:
        """How the priors of the last training step were matched."""
        return self.head.diagnostics

    def set_epoch(self, epoch: int) -> None:
        """Take the settings that are scheduled for an epoch, counted from 1."""
        self.head.set_epoch(epoch)

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
        if self.training and (targets is None or len(targets) != len(images)):
            raise ValueError("training needs one target an image")
        layout = is_channels_last(self.backbone)
        batch, sizes = pad_batch(images, self.size_divisor, channels_last=layout)
        output = self.head(self.fpn(self.backbone(batch)))
        if not self.training or targets is None:
            return self.head.detect(output, sizes)
        return self.head.losses(output, targets, sizes)
