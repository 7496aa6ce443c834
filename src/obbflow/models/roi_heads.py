"""Region head: rotated proposals -> classes and refined boxes."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from obbflow.config import LossSection, ModelSection
from obbflow.geometry import normalize_le90
from obbflow.models.batching import ImageSize
from obbflow.models.coders import DeltaCoder
from obbflow.models.fpn import STRIDES
from obbflow.models.losses import cross_entropy, smooth_l1, softmax_focal
from obbflow.models.matching import MaxIoUMatcher, ignore_covered, sample
from obbflow.ops import batched_nms_rotated, nms_rotated, roi_align_rotated
from obbflow.ops.iou import overlaps_rotated
from obbflow.structures import Detections, Target

_FINEST_SCALE = 56  # px: regions up to twice this side are pooled from P2
_POOLED_LEVELS = 4  # P2 .. P5
_iof = partial(overlaps_rotated, mode="iof")


class SampledRegions(NamedTuple):
    """The regions of one image that a training step learns from, positives first."""

    rboxes: Tensor  # (R, 5)
    labels: Tensor  # (R,) int64, 0 background
    matched: Tensor  # (P, 5) the ground truth of the first P regions


class RotatedRoIHead(nn.Module):
    """Rotated RoIAlign, two fully connected layers, class logits and class-agnostic box deltas.

    Source:
        Xie et al., Oriented R-CNN for object detection, ICCV 2021, section 3.2; the choice of the
        level as Lin et al., Feature pyramid networks, equation 1.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        config: ModelSection,
        num_classes: int,
        *,
        loss: LossSection,
        class_weights: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.loss = loss
        inputs = config.fpn_channels * config.roi_output_size**2
        self.fc1 = nn.Linear(inputs, config.roi_fc_channels)
        self.fc2 = nn.Linear(config.roi_fc_channels, config.roi_fc_channels)
        self.classifier = nn.Linear(config.roi_fc_channels, num_classes + 1)
        self.regressor = nn.Linear(config.roi_fc_channels, 5)
        self._initialise()
        # A property of the training data, not of the detector: it is not saved with the weights.
        self.register_buffer("class_weights", class_weights, persistent=False)
        self.coder = DeltaCoder(
            means=config.target_means,
            stds=config.target_stds,
            norm_factor=config.roi_norm_factor,
            edge_swap=config.roi_edge_swap,
            proj_xy=config.roi_proj_xy,
        )
        self.matcher = MaxIoUMatcher(
            positive=config.roi_positive_iou_threshold,
            negative=config.roi_negative_iou_threshold,
            min_positive=config.roi_min_pos_iou,
            low_quality=config.roi_match_low_quality,
        )

    def forward(self, levels: Sequence[Tensor], regions: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return logits (R, C + 1), background first, and deltas (R, 5) of all regions.

        Args:
            levels: P2 .. P6.
            regions: (R_i, 5) rboxes of each image, px.
        """
        pooled = self._pool(levels, regions).flatten(start_dim=1)
        hidden = functional.relu(self.fc2(functional.relu(self.fc1(pooled))))
        return self.classifier(hidden).float(), self.regressor(hidden).float()

    def _pool(self, levels: Sequence[Tensor], regions: Sequence[Tensor]) -> Tensor:
        """Return (R, channels, s, s) features; each region from the level that fits its size."""
        rois = torch.cat(
            [
                torch.cat([boxes.new_full((len(boxes), 1), row), boxes], dim=1)
                for row, boxes in enumerate(regions)
            ]
        )
        size = (rois[:, 3] * rois[:, 4]).clamp(min=0).sqrt()
        level_of = (size / _FINEST_SCALE + 1e-6).log2().floor().clamp(0, _POOLED_LEVELS - 1)
        pieces, rows = [], []
        for level in range(_POOLED_LEVELS):
            row = (level_of == level).nonzero().squeeze(1)
            # Empty levels are pooled too: their features stay connected to the loss.
            pieces.append(
                roi_align_rotated(
                    levels[level],
                    rois[row],
                    self.config.roi_output_size,
                    spatial_scale=1 / STRIDES[level],
                    sampling_ratio=self.config.roi_sampling_ratio,
                )
            )
            rows.append(row)
        return torch.cat(pieces)[torch.cat(rows).argsort()]

    @torch.no_grad()
    def sample_regions(self, proposals: Tensor, target: Target) -> SampledRegions:
        """Return a random choice of proposals of one image, with what they have to predict."""
        gt = target["rboxes"]
        if self.config.add_gt_as_proposals:
            proposals = torch.cat([gt, proposals])
        matches = self.matcher.match(gt, proposals, overlaps_rotated)
        if "rboxes_ignore" in target:
            matches = ignore_covered(matches, target["rboxes_ignore"], proposals, _iof)
        positive, negative = sample(
            matches, self.config.roi_batch_size_per_image, self.config.roi_positive_fraction
        )
        labels = torch.cat([target["labels"][matches[positive]], torch.zeros_like(negative)])
        return SampledRegions(
            proposals[torch.cat([positive, negative])], labels, gt[matches[positive]]
        )

    def losses(
        self, levels: Sequence[Tensor], samples: Sequence[SampledRegions]
    ) -> tuple[Tensor, Tensor]:
        """Return classification and box loss, each over the sampled regions of the batch."""
        logits, deltas = self(levels, [piece.rboxes for piece in samples])
        labels = torch.cat([piece.labels for piece in samples])
        positive = labels > 0
        priors = torch.cat([piece.rboxes for piece in samples])[positive]
        wanted = self.coder.encode(priors, torch.cat([piece.matched for piece in samples]))
        count = max(len(labels), 1)
        box_loss = smooth_l1(deltas[positive], wanted, beta=1.0).sum() / count
        return self._classification_losses(logits, labels).sum() / count, box_loss

    def _classification_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss (R,) of each region."""
        loss, config = self.loss, self.config
        if loss.loss_type in ("focal", "focal_weighted"):
            weights = self.class_weights if loss.loss_type == "focal_weighted" else None
            return softmax_focal(logits, labels, loss.focal_alpha, loss.focal_gamma, weights)
        if loss.loss_type == "none" and config.roi_loss_type == "focal":
            return softmax_focal(logits, labels, config.roi_focal_alpha, config.roi_focal_gamma)
        weights = self.class_weights if loss.loss_type == "class_weighted" else None
        return cross_entropy(logits, labels, weights, loss.label_smoothing)

    @torch.no_grad()
    def detect(
        self, levels: Sequence[Tensor], proposals: Sequence[Tensor], sizes: Sequence[ImageSize]
    ) -> list[Detections]:
        """Return the detections of each image after NMS, best first."""
        logits, deltas = self(levels, proposals)
        counts = [len(boxes) for boxes in proposals]
        pieces = zip(proposals, logits.split(counts), deltas.split(counts), sizes, strict=True)
        return [self._detect_one(*piece) for piece in pieces]

    def _detect_one(
        self, proposals: Tensor, logits: Tensor, deltas: Tensor, size: ImageSize
    ) -> Detections:
        config = self.config
        rboxes = self.coder.decode(proposals, deltas, image_size=size)
        scores = logits.softmax(dim=1)[:, 1:]
        row, column = (scores > config.inference_pre_nms_score_threshold).nonzero(as_tuple=True)
        rboxes = normalize_le90(rboxes[row])  # without edge_swap w and h come as regressed
        scores, labels = scores[row, column], column + 1
        if config.nms_class_agnostic:
            keep = nms_rotated(rboxes, scores, config.final_nms_iou_threshold)
        else:
            keep = batched_nms_rotated(rboxes, scores, labels, config.final_nms_iou_threshold)
        keep = keep[: config.max_detections_per_image]
        return Detections(rboxes=rboxes[keep], scores=scores[keep], labels=labels[keep])

    def _initialise(self) -> None:
        for layer in (self.fc1, self.fc2):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.normal_(self.classifier.weight, std=0.01)
        nn.init.normal_(self.regressor.weight, std=0.001)
        for layer in (self.fc1, self.fc2, self.classifier, self.regressor):
            nn.init.zeros_(layer.bias)
