"""Oriented region proposal network: P2 .. P6 -> rotated proposals."""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops import batched_nms

from obbflow.config import ModelSection
from obbflow.geometry import rbox_to_hbox
from obbflow.models.anchors import base_anchors, level_anchors
from obbflow.models.batching import ImageSize
from obbflow.models.coders import MidpointOffsetCoder
from obbflow.models.fpn import STRIDES
from obbflow.models.losses import binary_cross_entropy, smooth_l1
from obbflow.models.matching import IGNORED, MaxIoUMatcher, ignore_covered, sample
from obbflow.ops.pairs import overlaps_horizontal
from obbflow.structures import Target

_BETA = 1 / 9  # of smooth L1, as Faster R-CNN's RPN
_iof = partial(overlaps_horizontal, mode="iof")


class RPNOutput(NamedTuple):
    """Raw head outputs of a batch, levels and cells flattened: M anchors an image."""

    logits: Tensor  # (B, M)
    deltas: Tensor  # (B, M, 6)
    anchors: Tensor  # (M, 4) hboxes, px
    level_sizes: list[int]  # anchors a level; they add up to M
    cells: list[tuple[int, int]]  # (h, w) of each level


class OrientedRPN(nn.Module):
    """One 3 x 3 convolution, then objectness and midpoint offsets for every anchor.

    Source:
        Xie et al., Oriented R-CNN for object detection, ICCV 2021, section 3.1; losses and
        sampling as Ren et al., Faster R-CNN.
    """

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.config = config
        channels = config.fpn_channels
        self.base_anchors = [
            base_anchors(stride, config.anchor_scales, config.anchor_ratios) for stride in STRIDES
        ]
        shapes = len(self.base_anchors[0])
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        self.objectness = nn.Conv2d(channels, shapes, kernel_size=1)
        self.offsets = nn.Conv2d(channels, shapes * 6, kernel_size=1)
        for layer in (self.conv, self.objectness, self.offsets):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.constant_(layer.get_parameter("bias"), 0.0)
        self.coder = MidpointOffsetCoder()
        self.matcher = MaxIoUMatcher(
            positive=config.rpn_positive_iou_threshold,
            negative=config.rpn_negative_iou_threshold,
            min_positive=config.rpn_min_pos_iou,
            low_quality=config.rpn_match_low_quality,
        )

    def forward(self, levels: Sequence[Tensor]) -> RPNOutput:
        """Return objectness logits and midpoint offsets of all anchors on P2 .. P6."""
        logits, deltas, anchors = [], [], []
        for level, stride, base in zip(levels, STRIDES, self.base_anchors, strict=True):
            hidden = functional.relu(self.conv(level))
            batch, _, height, width = hidden.shape
            logits.append(self.objectness(hidden).permute(0, 2, 3, 1).reshape(batch, -1))
            deltas.append(self.offsets(hidden).permute(0, 2, 3, 1).reshape(batch, -1, 6))
            anchors.append(level_anchors(height, width, stride, base, hidden.device))
        return RPNOutput(
            torch.cat(logits, dim=1).float(),
            torch.cat(deltas, dim=1).float(),
            torch.cat(anchors),
            [len(level) for level in anchors],
            [(level.shape[2], level.shape[3]) for level in levels],
        )

    @torch.no_grad()
    def propose(self, output: RPNOutput) -> list[Tensor]:
        """Return the proposals of each image, (K, 5) rboxes, best first; no gradient.

        Of each level the best ``rpn_pre_nms_top_n`` are decoded; NMS works on enclosing hboxes,
        level by level; the best ``rpn_post_nms_top_n`` of all levels stay.
        """
        return [
            self._propose_one(logits, deltas, output)
            for logits, deltas in zip(output.logits, output.deltas, strict=True)
        ]

    def _propose_one(self, logits: Tensor, deltas: Tensor, output: RPNOutput) -> Tensor:
        config = self.config
        chosen, level_of, start = [], [], 0
        for level, size in enumerate(output.level_sizes):
            count = min(size, config.rpn_pre_nms_top_n)
            top = logits[start : start + size].topk(count).indices + start
            chosen.append(top)
            level_of.append(torch.full_like(top, level))
            start += size
        index, level_index = torch.cat(chosen), torch.cat(level_of)
        scores = logits[index].sigmoid()
        rboxes = self.coder.decode(output.anchors[index], deltas[index])
        large = rboxes[:, 2:4].amin(dim=1) > config.rpn_min_size
        rboxes, scores, level_index = rboxes[large], scores[large], level_index[large]
        keep = batched_nms(rbox_to_hbox(rboxes), scores, level_index, config.rpn_nms_threshold)
        return rboxes[keep[: config.rpn_post_nms_top_n]]

    def losses(
        self, output: RPNOutput, targets: Sequence[Target], sizes: Sequence[ImageSize]
    ) -> tuple[Tensor, Tensor]:
        """Return objectness and box loss, each over the sampled anchors of the batch."""
        objectness, labels, predicted, wanted, count = [], [], [], [], 0
        for row, (target, size) in enumerate(zip(targets, sizes, strict=True)):
            matches = self._match(output, target, size)
            positive, negative = sample(
                matches, self.config.rpn_batch_size_per_image, self.config.rpn_positive_fraction
            )
            both = torch.cat([positive, negative])
            objectness.append(output.logits[row, both])
            labels.append(torch.arange(len(both), device=both.device) < len(positive))
            predicted.append(output.deltas[row, positive])
            wanted.append(
                self.coder.encode(output.anchors[positive], target["rboxes"][matches[positive]])
            )
            count += len(both)
        objectness_loss = binary_cross_entropy(torch.cat(objectness), torch.cat(labels)).sum()
        box_loss = smooth_l1(torch.cat(predicted), torch.cat(wanted), _BETA).sum()
        return objectness_loss / max(count, 1), box_loss / max(count, 1)

    @torch.no_grad()
    def _match(self, output: RPNOutput, target: Target, size: ImageSize) -> Tensor:
        """Return the match of every anchor; anchors that cannot be judged are ``IGNORED``."""
        gt, anchors = rbox_to_hbox(target["rboxes"]), output.anchors
        matches = self.matcher.match(gt, anchors, overlaps_horizontal)
        if "rboxes_ignore" in target:
            regions = rbox_to_hbox(target["rboxes_ignore"])
            matches = ignore_covered(matches, regions, anchors, _iof)
        judged = _shows_content(output, size)
        border = self.config.rpn_allowed_border
        if border is not None:
            height, width = size
            judged &= (anchors[:, 0] >= -border) & (anchors[:, 1] >= -border)
            judged &= (anchors[:, 2] < width + border) & (anchors[:, 3] < height + border)
        return torch.where(judged, matches, IGNORED)


def _shows_content(output: RPNOutput, size: ImageSize) -> Tensor:
    """Return (M,) bool: does the anchor's cell show the image, not its padding?"""
    shown = []
    for (height, width), stride, count in zip(
        output.cells, STRIDES, output.level_sizes, strict=True
    ):
        cell = torch.zeros(height, width, dtype=torch.bool, device=output.anchors.device)
        cell[: math.ceil(size[0] / stride), : math.ceil(size[1] / stride)] = True
        shown.append(cell.flatten().repeat_interleave(count // cell.numel()))
    return torch.cat(shown)
