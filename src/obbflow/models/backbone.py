"""ResNet backbones with torchvision's blocks and names, so that torchvision's weights fit."""

from typing import Self

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck, conv1x1

_STAGES: dict[str, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, int, int, int]]] = {
    "resnet18": (BasicBlock, (2, 2, 2, 2)),
    "resnet34": (BasicBlock, (3, 4, 6, 3)),
    "resnet50": (Bottleneck, (3, 4, 6, 3)),
    "resnet101": (Bottleneck, (3, 4, 23, 3)),
}


class ResNet(nn.Module):
    """ResNet without its classifier; returns C2 .. C5.

    Parameter names are torchvision's (``conv1``, ``bn1``, ``layer1`` ..). ``width`` scales the
    channels of every stage: narrow ones learn a small data set in minutes on a CPU.

    Args:
        name: resnet18, resnet34, resnet50 or resnet101.
        width: Factor on the channels; 1.0 is the published network.
        trainable_layers: How many of (layer4, layer3, layer2, layer1, stem) learn, in that order.
        freeze_batch_norm: Batch norm normalises by its stored statistics in training too.

    Source:
        He et al., Deep residual learning for image recognition, CVPR 2016.
    """

    def __init__(
        self,
        name: str,
        *,
        width: float = 1.0,
        trainable_layers: int = 5,
        freeze_batch_norm: bool = True,
    ) -> None:
        super().__init__()
        block, depths = _STAGES[name]
        planes = [max(8, round(64 * width * 2**stage / 8) * 8) for stage in range(4)]
        self.freeze_batch_norm = freeze_batch_norm
        self.conv1 = nn.Conv2d(3, planes[0], kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(planes[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        inputs = planes[0]
        for stage, (channels, depth) in enumerate(zip(planes, depths, strict=True), start=1):
            layer = _stage(block, inputs, channels, depth, stride=1 if stage == 1 else 2)
            self.add_module(f"layer{stage}", layer)
            inputs = channels * block.expansion
        self.out_channels = [channels * block.expansion for channels in planes]
        self._initialise()
        self._freeze(trainable_layers)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return C2 .. C5, strides 4, 8, 16, 32, of images (B, 3, H, W)."""
        features = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        levels = []
        for stage in range(1, 5):
            features = self.get_submodule(f"layer{stage}")(features)
            levels.append(features)
        return levels

    def train(self, mode: bool = True) -> Self:
        """Switch the mode; frozen batch norms stay in evaluation mode."""
        super().train(mode)
        if mode:
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d) and self._is_fixed(module):
                    module.eval()
        return self

    def _is_fixed(self, norm: nn.BatchNorm2d) -> bool:
        return self.freeze_batch_norm or not norm.weight.requires_grad

    def _freeze(self, trainable_layers: int) -> None:
        stages = ["layer4", "layer3", "layer2", "layer1", "conv1"][:trainable_layers]
        if trainable_layers == 5:
            stages.append("bn1")
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.split(".")[0] in stages)

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def _stage(
    block: type[BasicBlock] | type[Bottleneck], inputs: int, planes: int, depth: int, stride: int
) -> nn.Sequential:
    """Return one stage of residual blocks; the first one changes stride and channels."""
    outputs = planes * block.expansion
    downsample = None
    if stride != 1 or inputs != outputs:
        downsample = nn.Sequential(conv1x1(inputs, outputs, stride), nn.BatchNorm2d(outputs))
    blocks = [block(inputs, planes, stride, downsample)]
    blocks += [block(outputs, planes) for _ in range(depth - 1)]
    return nn.Sequential(*blocks)
