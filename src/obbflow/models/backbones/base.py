"""What all backbones share: a stem and four stages, of which the first ones may be frozen."""

from collections.abc import Sequence
from typing import Self

from torch import nn


class Backbone(nn.Module):
    """Base of networks that turn images (B, 3, H, W) into C2 .. C5, strides 4, 8, 16, 32.

    A subclass adds its modules, sets ``out_channels`` and then calls ``freeze``. Names of
    parameters are torchvision's, so that its files of weights fit.

    Args:
        parts: Names of the modules of the stem and of stages 1 .. 4.
        left_out: Names of the tensors of torchvision's network that detection does without: those
            of its classifier.
        freeze_batch_norm: Batch norm normalises by its stored statistics in training too.
    """

    out_channels: list[int]

    def __init__(
        self,
        parts: Sequence[Sequence[str]],
        left_out: Sequence[str],
        *,
        freeze_batch_norm: bool,
    ) -> None:
        super().__init__()
        self.parts = tuple(tuple(part) for part in parts)
        self.left_out = tuple(left_out)
        self.freeze_batch_norm = freeze_batch_norm

    def freeze(self, trainable_layers: int) -> None:
        """Let the last ``trainable_layers`` of (stem, stage 1 .. 4) learn, and no other."""
        for number, part in enumerate(reversed(self.parts)):
            for name in part:
                self.get_submodule(name).requires_grad_(number < trainable_layers)

    def train(self, mode: bool = True) -> Self:
        """Switch the mode; what does not learn, and frozen batch norm, stays in evaluation mode."""
        super().train(mode)
        if not mode:
            return self
        for name in (name for part in self.parts for name in part):
            module = self.get_submodule(name)
            if not any(parameter.requires_grad for parameter in module.parameters()):
                module.eval()
        for module in self.modules():
            if self.freeze_batch_norm and isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self
