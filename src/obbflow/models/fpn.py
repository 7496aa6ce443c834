"""Feature pyramid: C2 .. C5 -> P2 .. P6."""

from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor, nn
from torchvision.ops import FeaturePyramidNetwork
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

STRIDES = (4, 8, 16, 32, 64)


class FPN(nn.Module):
    """torchvision's pyramid over C2 .. C5, with P6 taken from P5 by stride 2.

    Source:
        Lin et al., Feature pyramid networks for object detection, CVPR 2017.
    """

    def __init__(self, in_channels: Sequence[int], out_channels: int) -> None:
        super().__init__()
        self.pyramid = FeaturePyramidNetwork(
            list(in_channels), out_channels, extra_blocks=LastLevelMaxPool()
        )

    def forward(self, levels: Sequence[Tensor]) -> list[Tensor]:
        """Return P2 .. P6, each (B, out_channels, h, w), strides 4 .. 64."""
        named = OrderedDict((f"C{number}", level) for number, level in enumerate(levels, start=2))
        return list(self.pyramid(named).values())
