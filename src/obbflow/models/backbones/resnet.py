"""ResNets with torchvision's blocks and names, so that torchvision's weights fit."""

from typing import NamedTuple

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck, conv1x1

from obbflow.models.backbones.base import Backbone


class _Design(NamedTuple):
    block: type[BasicBlock] | type[Bottleneck]
    depths: tuple[int, int, int, int]
    groups: int = 1
    group_width: int = 64


RESNETS = {
    "resnet18": _Design(BasicBlock, (2, 2, 2, 2)),
    "resnet34": _Design(BasicBlock, (3, 4, 6, 3)),
    "resnet50": _Design(Bottleneck, (3, 4, 6, 3)),
    "resnet101": _Design(Bottleneck, (3, 4, 23, 3)),
    "resnet152": _Design(Bottleneck, (3, 8, 36, 3)),
    "resnext50_32x4d": _Design(Bottleneck, (3, 4, 6, 3), groups=32, group_width=4),
    "resnext101_32x8d": _Design(Bottleneck, (3, 4, 23, 3), groups=32, group_width=8),
    "wide_resnet50_2": _Design(Bottleneck, (3, 4, 6, 3), group_width=128),
}
"""torchvision's name -> block, blocks a stage, and groups of the bottleneck's convolution."""


class ResNet(Backbone):
    """ResNet without its classifier; returns C2 .. C5.

    Parameter names are torchvision's (``conv1``, ``bn1``, ``layer1`` ..). ``width`` scales the
    channels of every stage: narrow ones learn a small data set in minutes on a CPU.

    Args:
        name: A key of ``RESNETS``.
        width: Factor on the channels; 1.0 is the published network.
        trainable_layers: How many of (layer4, layer3, layer2, layer1, stem) learn, in that order.
        freeze_batch_norm: Batch norm normalises by its stored statistics in training too.

    Source:
        He et al., Deep residual learning for image recognition, CVPR 2016; Xie et al., Aggregated
        residual transformations, CVPR 2017; Zagoruyko and Komodakis, Wide residual networks, 2016.
    """

    def __init__(
        self,
        name: str,
        *,
        width: float = 1.0,
        trainable_layers: int = 5,
        freeze_batch_norm: bool = True,
    ) -> None:
        super().__init__(
            parts=[("conv1", "bn1"), ("layer1",), ("layer2",), ("layer3",), ("layer4",)],
            left_out=("fc.weight", "fc.bias"),
            freeze_batch_norm=freeze_batch_norm,
        )
        design = RESNETS[name]
        planes = [max(8, round(64 * width * 2**stage / 8) * 8) for stage in range(4)]
        self.conv1 = nn.Conv2d(3, planes[0], kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(planes[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        inputs = planes[0]
        for stage, channels in enumerate(planes, start=1):
            self.add_module(f"layer{stage}", _stage(design, stage, inputs, channels))
            inputs = channels * design.block.expansion
        self.out_channels = [channels * design.block.expansion for channels in planes]
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.freeze(trainable_layers)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return C2 .. C5, strides 4, 8, 16, 32, of images (B, 3, H, W)."""
        features = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        levels = []
        for stage in range(1, 5):
            features = self.get_submodule(f"layer{stage}")(features)
            levels.append(features)
        return levels


def _stage(design: _Design, stage: int, inputs: int, planes: int) -> nn.Sequential:
    """Return residual blocks, the first of which changes the channels and, after stage 1, halves.

    Args:
        design: Of the network.
        stage: 1 .. 4.
        inputs: Channels that come in.
        planes: Channels inside the blocks; ``expansion`` times as many go out.
    """
    block, groups, group_width = design.block, design.groups, design.group_width
    stride = 1 if stage == 1 else 2
    outputs = planes * block.expansion
    downsample = None
    if stride != 1 or inputs != outputs:
        downsample = nn.Sequential(conv1x1(inputs, outputs, stride), nn.BatchNorm2d(outputs))
    blocks = [block(inputs, planes, stride, downsample, groups, group_width)]
    blocks += [
        block(outputs, planes, groups=groups, base_width=group_width)
        for _ in range(1, design.depths[stage - 1])
    ]
    return nn.Sequential(*blocks)
