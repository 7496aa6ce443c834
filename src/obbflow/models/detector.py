"""What all detectors share: images in, losses or detections out."""

from collections.abc import Sequence

from torch import Tensor, nn

from obbflow.models.backbones import Backbone
from obbflow.models.batching import ImageSize, is_channels_last, pad_batch
from obbflow.models.fpn import FPN
from obbflow.structures import Detections, Target


class Detector(nn.Module):
    """Base of detectors: backbone and feature pyramid, and what a subclass makes of the features.

    Args:
        backbone: Images (B, 3, H, W) -> C2 .. C5.
        fpn: C2 .. C5 -> pyramid levels.
        size_divisor: Batches are padded to multiples of it.
    """

    def __init__(self, backbone: Backbone, fpn: FPN, *, size_divisor: int) -> None:
        super().__init__()
        self.size_divisor = size_divisor
        self.backbone = backbone
        self.fpn = fpn
        self.diagnostics: dict[str, Tensor] = {}
        """Counts of the last training step; they are no losses."""

    def set_epoch(self, epoch: int) -> None:
        """Take the settings that are scheduled for an epoch, counted from 1."""
        raise NotImplementedError

    def losses(
        self, levels: Sequence[Tensor], targets: Sequence[Target], sizes: Sequence[ImageSize]
    ) -> dict[str, Tensor]:
        """Return the losses (scalars) of a batch by name, and fill ``diagnostics``.

        Args:
            levels: Of the pyramid, (B, C, h, w) each.
            targets: One an image.
            sizes: Of each image, px.
        """
        raise NotImplementedError

    def detect(self, levels: Sequence[Tensor], sizes: Sequence[ImageSize]) -> list[Detections]:
        """Return the detections of each image in its own px, best first."""
        raise NotImplementedError

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
        levels = self.fpn(self.backbone(batch))
        if not self.training or targets is None:
            return self.detect(levels, sizes)
        return self.losses(levels, targets, sizes)
