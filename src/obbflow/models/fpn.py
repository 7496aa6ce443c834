"""Feature pyramid: C2 .. C5 -> P2 .. P6, or P3 .. P7."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops import FeaturePyramidNetwork
from torchvision.ops.feature_pyramid_network import ExtraFPNBlock, LastLevelMaxPool

STRIDES = (4, 8, 16, 32, 64)
"""Of P2 .. P6, px."""
DENSE_STRIDES = (8, 16, 32, 64, 128)
"""Of P3 .. P7, px."""

Extra = Literal["max_pool", "conv_on_input", "conv_on_output"]


class FPN(nn.Module):
    """torchvision's pyramid over C2 .. C5 or C3 .. C5, with coarser levels on top: five in all.

    Args:
        in_channels: Of C2 .. C5.
        out_channels: Of every level.
        start: Of ``in_channels``, the first that is used: 0 for C2, 1 for C3.
        extra: How coarser levels are made. "max_pool": P6 takes every second px of P5, as Faster
            R-CNN has it. "conv_on_input": P6 is a convolution of C5 and P7 one of P6, as RetinaNet
            has it. "conv_on_output": P6 is a convolution of P5 and P7, after ReLU, one of P6, as
            FCOS has it.

    Attributes:
        strides: Of the levels, px.

    Source:
        Lin et al., Feature pyramid networks for object detection, CVPR 2017; Focal loss for dense
        object detection, ICCV 2017, section 4; Tian et al., FCOS, ICCV 2019, section 3.2. Without
        ReLU between P6 and P7 in "conv_on_input", as in MMRotate's weights.
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        out_channels: int,
        *,
        start: int = 0,
        extra: Extra = "max_pool",
    ) -> None:
        super().__init__()
        self.start = start
        self.strides = DENSE_STRIDES if start else STRIDES
        used = list(in_channels[start:])
        self.pyramid = FeaturePyramidNetwork(
            used, out_channels, extra_blocks=_make_extra(extra, used[-1], out_channels)
        )

    def forward(self, levels: Sequence[Tensor]) -> list[Tensor]:
        """Return P2 .. P6 or P3 .. P7, each (B, out_channels, h, w), of C2 .. C5."""
        used = enumerate(levels[self.start :], start=self.start + 2)
        named = OrderedDict((f"C{number}", level) for number, level in used)
        return list(self.pyramid(named).values())


def _make_extra(extra: Extra, c5_channels: int, channels: int) -> ExtraFPNBlock:
    if extra == "max_pool":
        return LastLevelMaxPool()
    on_input = extra == "conv_on_input"
    return _ExtraConvolutions(c5_channels if on_input else channels, channels, on_input=on_input)


class _ExtraConvolutions(ExtraFPNBlock):
    """P6 and P7 by 3 x 3 convolutions of stride 2."""

    def __init__(self, first_channels: int, channels: int, *, on_input: bool) -> None:
        super().__init__()
        self.on_input = on_input
        self.p6 = nn.Conv2d(first_channels, channels, kernel_size=3, stride=2, padding=1)
        self.p7 = nn.Conv2d(channels, channels, kernel_size=3, stride=2, padding=1)
        for layer in (self.p6, self.p7):
            nn.init.kaiming_uniform_(layer.weight, a=1)
            nn.init.constant_(layer.get_parameter("bias"), 0.0)

    def forward(
        self, results: list[Tensor], x: list[Tensor], names: list[str]
    ) -> tuple[list[Tensor], list[str]]:
        p6 = self.p6(x[-1] if self.on_input else results[-1])
        p7 = self.p7(p6 if self.on_input else functional.relu(p6))
        return [*results, p6, p7], [*names, "P6", "P7"]
