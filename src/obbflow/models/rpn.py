"""Region proposal networks: P2 .. P6 -> rotated or horizontal proposals."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops import batched_nms

from obbflow.config import ModelSection
from obbflow.geometry import rbox_to_hbox
from obbflow.models.anchors import base_anchors, level_anchors, shown_cells
from obbflow.models.batching import ImageSize
from obbflow.models.coders import HorizontalDeltaCoder, MidpointOffsetCoder
from obbflow.models.fpn import STRIDES
from obbflow.models.losses import binary_cross_entropy, smooth_l1
from obbflow.models.matching import IGNORED, MaxIoUMatcher, ignore_covered, sample
from obbflow.ops.iou import overlaps_rotated
from obbflow.ops.pairs import overlaps_horizontal
from obbflow.structures import Target

_BETA = 1 / 9  # of smooth L1, as Faster R-CNN's RPN
_iof = partial(overlaps_horizontal, mode="iof")


class RPNOutput(NamedTuple):
    """Raw head outputs of a batch, levels and cells flattened: M anchors an image."""

    logits: Tensor  # (B, M)
    deltas: Tensor  # (B, M, K)
    anchors: Tensor  # (M, 4) hboxes, px
    level_sizes: list[int]  # anchors a level; they add up to M
    cells: list[tuple[int, int]]  # (h, w) of each level


class _Coder(Protocol):
    def encode(self, priors: Tensor, targets: Tensor) -> Tensor: ...


class RegionProposalNetwork(nn.Module):
    """One 3 x 3 convolution, then objectness and box deltas for every anchor.

    Anchors are horizontal. A subclass says what the deltas are: their number ``delta_size``, their
    ``coder`` and how they become regions.

    Source:
        Ren et al., Faster R-CNN, NeurIPS 2015; on a pyramid as Lin et al., FPN, section 4.1.
    """

    delta_size: int
    coder: _Coder

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
        self.offsets = nn.Conv2d(channels, shapes * self.delta_size, kernel_size=1)
        for layer in (self.conv, self.objectness, self.offsets):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.constant_(layer.get_parameter("bias"), 0.0)
        self.matcher = MaxIoUMatcher(
            positive=config.rpn_positive_iou_threshold,
            negative=config.rpn_negative_iou_threshold,
            min_positive=config.rpn_min_pos_iou,
            low_quality=config.rpn_match_low_quality,
        )

    def decode(self, anchors: Tensor, deltas: Tensor, size: ImageSize) -> tuple[Tensor, Tensor]:
        """Return the regions of anchors as rboxes (N, 5) and their enclosing hboxes (N, 4).

        Args:
            anchors: (N, 4) hboxes, px.
            deltas: (N, ``delta_size``).
            size: Of the image, px.
        """
        raise NotImplementedError

    def forward(self, levels: Sequence[Tensor]) -> RPNOutput:
        """Return objectness logits and box deltas of all anchors on P2 .. P6."""
        logits, deltas, anchors = [], [], []
        for level, stride, base in zip(levels, STRIDES, self.base_anchors, strict=True):
            hidden = functional.relu(self.conv(level))
            batch, _, height, width = hidden.shape
            logits.append(self.objectness(hidden).permute(0, 2, 3, 1).reshape(batch, -1))
            offsets = self.offsets(hidden).permute(0, 2, 3, 1)
            deltas.append(offsets.reshape(batch, -1, self.delta_size))
            anchors.append(level_anchors(height, width, stride, base, hidden.device))
        return RPNOutput(
            torch.cat(logits, dim=1).float(),
            torch.cat(deltas, dim=1).float(),
            torch.cat(anchors),
            [len(level) for level in anchors],
            [(level.shape[2], level.shape[3]) for level in levels],
        )

    @torch.no_grad()
    def propose(self, output: RPNOutput, sizes: Sequence[ImageSize]) -> list[Tensor]:
        """Return the proposals of each image, (K, 5) boxes, best first; no gradient.

        Of each level the best ``rpn_pre_nms_top_n`` are decoded; NMS works on enclosing hboxes,
        level by level; the best ``rpn_post_nms_top_n`` of all levels stay.
        """
        return [
            self._propose_one(logits, deltas, output, size)
            for logits, deltas, size in zip(output.logits, output.deltas, sizes, strict=True)
        ]

    def _propose_one(
        self, logits: Tensor, deltas: Tensor, output: RPNOutput, size: ImageSize
    ) -> Tensor:
        config = self.config
        chosen, level_of, start = [], [], 0
        for level, level_size in enumerate(output.level_sizes):
            count = min(level_size, config.rpn_pre_nms_top_n)
            top = logits[start : start + level_size].topk(count).indices + start
            chosen.append(top)
            level_of.append(torch.full_like(top, level))
            start += level_size
        index, level_index = torch.cat(chosen), torch.cat(level_of)
        scores = logits[index].sigmoid()
        rboxes, hboxes = self.decode(output.anchors[index], deltas[index], size)
        large = rboxes[:, 2:4].amin(dim=1) > config.rpn_min_size
        rboxes, hboxes = rboxes[large], hboxes[large]
        keep = batched_nms(hboxes, scores[large], level_index[large], config.rpn_nms_threshold)
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
        gt, anchors = target["rboxes"], output.anchors
        if self.config.use_hbb_for_matching:
            matches = self.matcher.match(rbox_to_hbox(gt), anchors, overlaps_horizontal)
        else:
            matches = self.matcher.match(gt, level_rboxes(anchors), overlaps_rotated)
        if "rboxes_ignore" in target:
            regions = rbox_to_hbox(target["rboxes_ignore"])
            matches = ignore_covered(matches, regions, anchors, _iof)
        # Anchors on look-alikes are background like any other, not drawn first: objectness knows
        # no class, and what it learnt to hide the region head could not learn to tell apart.
        judged = _shows_content(output, size)
        border = self.config.rpn_allowed_border
        if border is not None:
            height, width = size
            judged &= (anchors[:, 0] >= -border) & (anchors[:, 1] >= -border)
            judged &= (anchors[:, 2] < width + border) & (anchors[:, 3] < height + border)
        return torch.where(judged, matches, IGNORED)


class OrientedRPN(RegionProposalNetwork):
    """Rotated proposals by midpoint offsets.

    Source:
        Xie et al., Oriented R-CNN for object detection, ICCV 2021, section 3.1.
    """

    delta_size = 6
    coder = MidpointOffsetCoder()

    def decode(
        self,
        anchors: Tensor,
        deltas: Tensor,
        size: ImageSize,  # noqa: ARG002 - rotated proposals may reach beyond the border
    ) -> tuple[Tensor, Tensor]:
        """Return rboxes (N, 5), le90, and their enclosing hboxes; nothing is cut at the border."""
        rboxes = self.coder.decode(anchors, deltas)
        return rboxes, rbox_to_hbox(rboxes)


class HorizontalRPN(RegionProposalNetwork):
    """Proposals that enclose the objects: boxes of angle 0, as wide and tall as they come.

    Source:
        Ren et al., Faster R-CNN, NeurIPS 2015.
    """

    delta_size = 4
    coder = HorizontalDeltaCoder()

    def decode(self, anchors: Tensor, deltas: Tensor, size: ImageSize) -> tuple[Tensor, Tensor]:
        """Return boxes of angle 0 (N, 5), and the same as hboxes; both cut at the border."""
        hboxes = self.coder.decode(anchors, deltas, size)
        return level_rboxes(hboxes), hboxes


def level_rboxes(hboxes: Tensor) -> Tensor:
    """Return hboxes (N, 4) as (cx, cy, w, h, 0), (N, 5): not le90 where h is the longer side.

    A region that is pooled keeps its w axis level; le90 would turn a tall one.
    """
    start, end = hboxes[:, :2], hboxes[:, 2:]
    return torch.cat([(start + end) / 2, end - start, hboxes.new_zeros(len(hboxes), 1)], dim=1)


def _shows_content(output: RPNOutput, size: ImageSize) -> Tensor:
    """Return (M,) bool: does the anchor's cell show the image, not its padding?"""
    shown = [
        shown_cells(height, width, stride, size, output.anchors.device).repeat_interleave(
            count // (height * width)
        )
        for (height, width), stride, count in zip(
            output.cells, STRIDES, output.level_sizes, strict=True
        )
    ]
    return torch.cat(shown)
