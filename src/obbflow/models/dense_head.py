"""What heads of one-stage detectors share: towers, the class loss, and the way to detections."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from obbflow.config import LossSection, ModelSection
from obbflow.models.anchors import shown_cells
from obbflow.models.batching import ImageSize
from obbflow.models.losses import (
    gwd_loss,
    kld_loss,
    one_hot_targets,
    probiou_loss,
    rotated_iou_loss,
    sigmoid_focal,
)
from obbflow.models.matching import BACKGROUND, IGNORED
from obbflow.ops import batched_nms_rotated, nms_rotated
from obbflow.structures import Detections, Target

_PRIOR_PROBABILITY = 0.01  # of each class at each prior before training
_WEIGHTED = ("class_weighted", "focal_weighted")  # values of loss.loss_type


class Grid(NamedTuple):
    """The cells of one level."""

    height: int
    width: int
    stride: int  # px of the image a cell


class DenseOutput(NamedTuple):
    """Raw outputs of a head for a batch, levels and cells flattened: M priors an image."""

    logits: Tensor  # (B, M, C)
    codes: Tensor  # (B, M, 5), what the head's coder decodes to a rbox
    centerness: Tensor | None  # (B, M) logits
    priors: Tensor  # (M, k) anchors or points, px
    grids: list[Grid]
    per_cell: int  # priors

    @property
    def level_sizes(self) -> list[int]:
        """Priors a level; they add up to M."""
        return [grid.height * grid.width * self.per_cell for grid in self.grids]


class DenseHead(nn.Module):
    """Two towers of convolutions on every level: one tells classes, one boxes.

    A subclass says what the priors are, which object each has to find (``match``), and how boxes
    are learnt (``box_losses``) and decoded (``decode``).

    Every class is told apart from all others by itself, with a focal loss. Where ``loss.loss_type``
    is ``class_weighted`` or ``focal_weighted``, the loss of a prior, summed over the classes, is
    multiplied by the class weight of its label, that of background included; other values of it
    mean no weights.

    After ``losses``, ``diagnostics`` holds counts of that batch.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        config: ModelSection,
        num_classes: int,
        *,
        loss: LossSection,
        class_weights: Tensor | None,
        depth: int,
        per_cell: int,
        box_channels: int,
        norm: bool,
    ) -> None:
        super().__init__()
        channels = config.fpn_channels
        self.config = config
        self.loss = loss
        self.num_classes = num_classes
        self.per_cell = per_cell
        self.cls_tower = _tower(channels, depth, norm=norm)
        self.box_tower = _tower(channels, depth, norm=norm)
        self.classifier = nn.Conv2d(channels, per_cell * num_classes, kernel_size=3, padding=1)
        self.regressor = nn.Conv2d(channels, per_cell * box_channels, kernel_size=3, padding=1)
        for layer in (self.classifier, self.regressor):
            initialise(layer)
        rare = -math.log((1 - _PRIOR_PROBABILITY) / _PRIOR_PROBABILITY)
        nn.init.constant_(self.classifier.get_parameter("bias"), rare)
        # A property of the training data, not of the detector: it is not saved with the weights.
        self.register_buffer("class_weights", class_weights, persistent=False)
        self.diagnostics: dict[str, Tensor] = {}
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Take the settings that are scheduled for an epoch, counted from 1."""
        self.nms_threshold = self.config.at_epoch(epoch).final_nms_iou_threshold

    def match(self, output: DenseOutput, target: Target) -> Tensor:
        """Return (M,) int64: for each prior its object, ``BACKGROUND`` or ``IGNORED``."""
        raise NotImplementedError

    def box_losses(
        self, output: DenseOutput, positive: tuple[Tensor, Tensor], matched: Tensor
    ) -> dict[str, Tensor]:
        """Return the losses (scalars) that positive priors of the batch have, by name.

        Args:
            output: Of the batch.
            positive: (P,) image and (P,) prior of each; P may be 0.
            matched: (P, 5) the rboxes that they have to find.
        """
        raise NotImplementedError

    def decode(self, priors: Tensor, codes: Tensor, size: ImageSize) -> Tensor:
        """Return rboxes (K, 5), le90, of priors (K, k) and codes (K, 5) in an image."""
        raise NotImplementedError

    def losses(
        self, output: DenseOutput, targets: Sequence[Target], sizes: Sequence[ImageSize]
    ) -> dict[str, Tensor]:
        """Return the losses of a batch by name; ``loss_classifier`` is over its positive priors.

        Args:
            output: Of the batch.
            targets: One an image.
            sizes: Of each image, px. Cells beyond teach nothing: they show padding.
        """
        matches = torch.stack([self.match(output, target) for target in targets])
        for row, size in enumerate(sizes):
            matches[row, ~_shown(output, size)] = IGNORED
        labels = torch.zeros_like(matches)
        matched = []
        for row, target in enumerate(targets):
            is_positive = matches[row] >= 0
            index = matches[row, is_positive]
            labels[row, is_positive] = target["labels"][index]
            matched.append(target["rboxes"][index])
        image, prior = (matches >= 0).nonzero(as_tuple=True)
        judged = matches != IGNORED
        self.diagnostics = _diagnose(matches, targets)
        classification = self._classification_losses(output.logits[judged], labels[judged]).sum()
        return {
            "loss_classifier": classification / max(len(prior), 1),
            **self.box_losses(output, (image, prior), torch.cat(matched)),
        }

    def _classification_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss (N,) of priors with logits (N, C) and labels (N,)."""
        losses = sigmoid_focal(
            logits,
            one_hot_targets(labels, self.num_classes),
            self.config.one_stage_focal_alpha,
            self.config.one_stage_focal_gamma,
        ).sum(dim=1)
        if self.class_weights is None or self.loss.loss_type not in _WEIGHTED:
            return losses
        return losses * self.class_weights.float()[labels]

    @torch.no_grad()
    def detect(self, output: DenseOutput, sizes: Sequence[ImageSize]) -> list[Detections]:
        """Return the detections of each image after NMS, best first.

        Of each level the ``one_stage_pre_nms_top_n`` most likely pairs of prior and class above
        ``inference_pre_nms_score_threshold`` are decoded. Their score is the probability of the
        class, where the head tells centerness multiplied by it: such a score may be below the
        threshold.
        """
        return [self._detect_one(output, row, size) for row, size in enumerate(sizes)]

    def _detect_one(self, output: DenseOutput, row: int, size: ImageSize) -> Detections:
        config = self.config
        prior, column = _best_pairs(
            output.logits[row].sigmoid(),
            output.level_sizes,
            config.inference_pre_nms_score_threshold,
            config.one_stage_pre_nms_top_n,
        )
        rboxes = self.decode(output.priors[prior], output.codes[row, prior], size)
        solid = (rboxes[:, 2:4] > 0).all(dim=1)
        rboxes, prior, column = rboxes[solid], prior[solid], column[solid]
        scores = output.logits[row, prior, column].sigmoid()
        if output.centerness is not None:
            scores = scores * output.centerness[row, prior].sigmoid()
        keep = self._suppress(rboxes, scores, column).to(rboxes.device)
        return Detections(rboxes=rboxes[keep], scores=scores[keep], labels=column[keep] + 1)

    def _suppress(self, rboxes: Tensor, scores: Tensor, classes: Tensor) -> Tensor:
        """Return the rows that stay, best first."""
        if self.config.final_nms_use_cpu:
            rboxes, scores, classes = rboxes.cpu(), scores.cpu(), classes.cpu()
        if self.config.nms_class_agnostic:
            keep = nms_rotated(rboxes, scores, self.nms_threshold)
        else:
            keep = batched_nms_rotated(rboxes, scores, classes, self.nms_threshold)
        return keep[: self.config.max_detections_per_image]


def initialise(layer: nn.Conv2d) -> None:
    """Start a convolution of a head with small weights and no bias."""
    nn.init.normal_(layer.weight, std=0.01)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def flatten_level(maps: Tensor, width: int) -> Tensor:
    """Return (B, A x K, H, W) as (B, H x W x A, K) in float32; ``width`` is K."""
    return maps.permute(0, 2, 3, 1).reshape(len(maps), -1, width).float()


def box_overlap_loss(
    kind: Literal["riou", "probiou", "gwd", "kld"], rboxes: Tensor, targets: Tensor
) -> Tensor:
    """Return the loss (P,) of decoded rboxes (P, 5), as the function of that name computes it."""
    match kind:
        case "riou":
            return rotated_iou_loss(rboxes, targets, mode="log")
        case "probiou":
            return probiou_loss(rboxes, targets)
        case "gwd":
            return gwd_loss(rboxes, targets)
        case "kld":
            return kld_loss(rboxes, targets)


def _tower(channels: int, depth: int, *, norm: bool) -> nn.Sequential:
    """Return ``depth`` 3 x 3 convolutions, each with group norm where asked for, then ReLU."""
    blocks = []
    for _ in range(depth):
        conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=not norm)
        initialise(conv)
        parts: list[tuple[str, nn.Module]] = [("conv", conv)]
        if norm:
            parts.append(("norm", nn.GroupNorm(_count_groups(channels), channels)))
        parts.append(("relu", nn.ReLU(inplace=True)))
        blocks.append(nn.Sequential(OrderedDict(parts)))
    return nn.Sequential(*blocks)


def _count_groups(channels: int) -> int:
    """Return the most groups, 32 as published, of two channels or more.

    A level of one cell has one value a channel, and a single value has no spread.
    """
    fits = [2**power for power in range(6) if channels % 2**power == 0]
    return max(groups for groups in fits if groups == 1 or channels >= 2 * groups)


def _shown(output: DenseOutput, size: ImageSize) -> Tensor:
    """Return (M,) bool: does the prior's cell show the image, not its padding?"""
    cells = [shown_cells(*grid, size, output.priors.device) for grid in output.grids]
    return torch.cat(cells).repeat_interleave(output.per_cell)


def _best_pairs(
    scores: Tensor, level_sizes: Sequence[int], threshold: float, count: int
) -> tuple[Tensor, Tensor]:
    """Return (K,) rows and (K,) columns of the best scores (M, C) above a threshold.

    At most ``count`` of each level, best first; equal ones in the order of the priors.
    """
    rows, columns, start = [], [], 0
    for level in scores.split(list(level_sizes)):
        row, column = (level > threshold).nonzero(as_tuple=True)
        best = level[row, column].argsort(descending=True, stable=True)[:count]
        rows.append(row[best] + start)
        columns.append(column[best])
        start += len(level)
    return torch.cat(rows), torch.cat(columns)


def _diagnose(matches: Tensor, targets: Sequence[Target]) -> dict[str, Tensor]:
    """Return how the priors of a batch were matched, (B, M)."""
    found = sum(len(row[row >= 0].unique()) for row in matches)
    objects = sum(len(target["rboxes"]) for target in targets)
    return {
        "prior_num_pos": (matches >= 0).sum().float(),
        "prior_num_bg": (matches == BACKGROUND).sum().float(),
        "prior_num_ignore": (matches == IGNORED).sum().float(),
        "prior_matched_gt": torch.tensor(float(found)),
        "prior_match_rate": torch.tensor(found / objects if objects else float("nan")),
    }
