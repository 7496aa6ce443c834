"""Backbones cut out of torchvision's classification networks, under torchvision's names."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm
from torchvision.models import get_model

from obbflow.models.backbones.base import Backbone

Parts = tuple[tuple[str, ...], ...]


class _Cut(NamedTuple):
    """Where a network is cut into a stem and four stages, and what its levels need."""

    parts: Parts
    channels_last: bool = False  # its feature maps are (B, H, W, C)
    normalised: bool = False  # its levels are sums of residuals that nothing has normalised


def _slices(*ends: int) -> Parts:
    """Return the names of the children of ``features`` before each end, from the one before it."""
    starts = (0, *ends[:-1])
    return tuple(
        tuple(f"features.{number}" for number in range(start, end))
        for start, end in zip(starts, ends, strict=True)
    )


_EFFICIENTNET = _Cut(_slices(2, 3, 4, 6, 8))
_REGNET = _Cut((("stem",), *((f"trunk_output.block{number}",) for number in range(1, 5))))
_CONVNEXT = _Cut(_slices(1, 2, 4, 6, 8), normalised=True)
_SWIN = _Cut(_slices(1, 2, 4, 6, 8), channels_last=True, normalised=True)
_DENSENET = _Cut(
    (
        ("features.conv0", "features.norm0", "features.relu0", "features.pool0"),
        ("features.denseblock1",),
        ("features.transition1", "features.denseblock2"),
        ("features.transition2", "features.denseblock3"),
        ("features.transition3", "features.denseblock4", "features.norm5"),
    )
)

NETWORKS = {
    "mobilenet_v3_large": _Cut(_slices(2, 4, 7, 13, 16)),
    **{f"efficientnet_b{size}": _EFFICIENTNET for size in range(4)},
    "efficientnet_v2_s": _Cut(_slices(2, 3, 4, 6, 7)),
    **{f"regnet_y_{flops}": _REGNET for flops in ("400mf", "800mf", "1_6gf", "3_2gf")},
    **{f"convnext_{size}": _CONVNEXT for size in ("tiny", "small", "base")},
    **{f"swin_{size}": _SWIN for size in ("t", "s")},
    "densenet121": _DENSENET,
}
"""torchvision's name -> the modules of its stem and stages 1 .. 4."""


class ExtractedBackbone(Backbone):
    """A classification network of torchvision up to its last stage; returns C2 .. C5.

    What only serves the classifier (pooling, a last 1x1 convolution, a last norm) is left out.
    Levels of ConvNeXt and Swin pass a layer norm over the channels, as in published detectors. It
    has no weights: those of the FPN's 1x1 convolution behind it can express the same.

    Args:
        name: A key of ``NETWORKS``.
        trainable_layers: How many of (stage 4, 3, 2, 1, stem) learn, in that order.
        freeze_batch_norm: Batch norm normalises by its stored statistics in training too; other
            norms are left alone.
    """

    def __init__(
        self, name: str, *, trainable_layers: int = 5, freeze_batch_norm: bool = True
    ) -> None:
        self_parts = NETWORKS[name].parts
        network = get_model(name, weights=None)
        names = tuple(part for parts in self_parts for part in parts)
        prefixes = tuple(f"{part}." for part in names)
        super().__init__(
            self_parts,
            [key for key in network.state_dict() if not key.startswith(prefixes)],
            freeze_batch_norm=freeze_batch_norm,
        )
        self.cut = NETWORKS[name]
        for path in names:
            parent, _, leaf = path.rpartition(".")
            if parent and not hasattr(self, parent):
                self.add_module(parent, nn.Module())
            self.get_submodule(parent).add_module(leaf, network.get_submodule(path))
        self.eval()
        with torch.no_grad():
            self.out_channels = [level.shape[1] for level in self(torch.zeros(1, 3, 64, 64))]
        self.train()
        self.freeze(trainable_layers)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return C2 .. C5, strides 4, 8, 16, 32, of images (B, 3, H, W)."""
        features = images
        levels = []
        for part in self.parts:
            for name in part:
                features = self.get_submodule(name)(features)
            levels.append(self._level(features))
        return levels[1:]

    def _level(self, features: Tensor) -> Tensor:
        """Return features as (B, C, H, W), normalised where the network does not do so itself."""
        if self.cut.normalised:
            rows = features if self.cut.channels_last else features.permute(0, 2, 3, 1)
            return layer_norm(rows, rows.shape[-1:]).permute(0, 3, 1, 2)
        return features
