"""Region head: rotated proposals -> classes and refined boxes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from obbflow.config import LossSection, ModelSection
from obbflow.geometry import normalize_le90
from obbflow.models.batching import ImageSize
from obbflow.models.coders import DeltaCoder
from obbflow.models.fpn import STRIDES
from obbflow.models.losses import cross_entropy, softmax_focal
from obbflow.models.roi_box_loss import RoIBoxLoss
from obbflow.models.roi_sampling import RegionSampler, SampledRegions
from obbflow.ops import batched_nms_rotated, nms_rotated, roi_align_rotated
from obbflow.structures import Detections

_FINEST_SCALE = 56  # px: regions up to twice this side are pooled from P2
_POOLED_LEVELS = 4  # P2 .. P5


class RotatedRoIHead(nn.Module):
    """Rotated RoIAlign, two fully connected layers, class logits and class-agnostic box deltas.

    Args:
        config: Section ``model``.
        num_classes: C, background not counted.
        loss: Section ``loss``.
        class_weights: (C + 1,) weights of the classification loss, background first.
        is_horizontal: Regions have angle 0 and enclose the objects, of which they are matched to
            the enclosing boxes.

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
        is_horizontal: bool = False,
    ) -> None:
        super().__init__()
        self.is_horizontal = is_horizontal
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
        self.sample_regions = RegionSampler(config, is_horizontal=is_horizontal)
        self.box_loss = RoIBoxLoss(config, self.coder)
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Take the settings that are scheduled for an epoch, counted from 1."""
        self.box_loss.set_epoch(epoch)
        self.nms_threshold = self.config.at_epoch(epoch).final_nms_iou_threshold

    def forward(self, levels: Sequence[Tensor], regions: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return logits (R, C + 1), background first, and deltas (R, 5) of all regions.

        Args:
            levels: P2 .. P6.
            regions: (R_i, 5) rboxes of each image, px.
        """
        rois = torch.cat(
            [
                torch.cat([boxes.new_full((len(boxes), 1), row), boxes], dim=1)
                for row, boxes in enumerate(regions)
            ]
        )
        size = self.config.roi_chunk_size or max(len(rois), 1)
        pieces = [self._look_at(levels, chunk) for chunk in rois.split(size)]
        logits, deltas = (torch.cat(piece) for piece in zip(*pieces, strict=True))
        return logits, deltas

    def _look_at(self, levels: Sequence[Tensor], rois: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and deltas of some regions, each (image, rbox)."""
        if self.config.roi_use_checkpoint and torch.is_grad_enabled():
            return checkpoint(self._classify, levels, rois, use_reentrant=False)
        return self._classify(levels, rois)

    def _classify(self, levels: Sequence[Tensor], rois: Tensor) -> tuple[Tensor, Tensor]:
        pooled = self._pool(levels, rois).flatten(start_dim=1)
        hidden = functional.relu(self.fc2(functional.relu(self.fc1(pooled))))
        return self.classifier(hidden).float(), self.regressor(hidden).float()

    def _pool(self, levels: Sequence[Tensor], rois: Tensor) -> Tensor:
        """Return (R, channels, s, s) features; each region from the level that fits its size."""
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

    def losses(
        self, levels: Sequence[Tensor], samples: Sequence[SampledRegions]
    ) -> tuple[Tensor, Tensor]:
        """Return classification and box loss, each over the sampled regions of the batch."""
        logits, deltas = self(levels, [piece.rboxes for piece in samples])
        labels = torch.cat([piece.labels for piece in samples])
        positive = labels > 0
        priors = torch.cat([piece.rboxes for piece in samples])[positive]
        matched = torch.cat([piece.matched for piece in samples])
        count = max(len(labels), 1)
        by_all = self.config.roi_box_reg_norm == "sampled_all"
        box_loss = self.box_loss(priors, deltas[positive], matched).sum()
        box_loss = box_loss / (count if by_all else max(len(matched), 1))
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
        # Published: centres of boxes from rotated regions stay in the image, others need not.
        limit = None if self.is_horizontal else size
        rboxes = self.coder.decode(proposals, deltas, image_size=limit)
        scores = logits.softmax(dim=1)[:, 1:]
        if config.roi_inference_top_class_only:
            best = scores.argmax(dim=1, keepdim=True)
            scores = torch.zeros_like(scores).scatter(1, best, scores.gather(1, best))
        row, column = (scores > config.inference_pre_nms_score_threshold).nonzero(as_tuple=True)
        rboxes = normalize_le90(rboxes[row])  # without edge_swap w and h come as regressed
        keep = self._suppress(rboxes, scores[row, column], column)
        return Detections(
            rboxes=rboxes[keep], scores=scores[row, column][keep], labels=column[keep] + 1
        )

    def _suppress(self, rboxes: Tensor, scores: Tensor, classes: Tensor) -> Tensor:
        """Return the detections that stay, best first."""
        config = self.config
        if config.final_nms_use_cpu:
            rboxes, scores, classes = rboxes.cpu(), scores.cpu(), classes.cpu()
        if config.nms_class_agnostic:
            keep = nms_rotated(rboxes, scores, self.nms_threshold)
        else:
            keep = batched_nms_rotated(rboxes, scores, classes, self.nms_threshold)
        return keep[: config.max_detections_per_image]

    def _initialise(self) -> None:
        for layer in (self.fc1, self.fc2):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.normal_(self.classifier.weight, std=0.01)
        nn.init.normal_(self.regressor.weight, std=0.001)
        for layer in (self.fc1, self.fc2, self.classifier, self.regressor):
            nn.init.zeros_(layer.bias)
