"""Which regions a step of the region head learns from, and what they have to become."""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from obbflow.config import ModelSection
from obbflow.geometry import rbox_to_hbox
from obbflow.models.matching import (
    BACKGROUND,
    MaxIoUMatcher,
    find_overlapping,
    ignore_covered,
    sample,
)
from obbflow.models.rpn import level_rboxes
from obbflow.ops.iou import overlaps_rotated
from obbflow.ops.pairs import overlaps_horizontal
from obbflow.structures import Target


class SampledRegions(NamedTuple):
    """The regions of one image that a training step learns from, positives first."""

    rboxes: Tensor  # (R, 5)
    labels: Tensor  # (R,) int64, 0 background
    matched: Tensor  # (P, 5) the ground truth of the first P regions
    counts: dict[str, int]  # of all regions: "pos", "bg" and "ignore"


class RegionSampler:
    """Matches regions to objects and draws some of them.

    Args:
        config: Section ``model``.
        is_horizontal: Regions have angle 0 and enclose the objects, of which they are matched to
            the enclosing boxes.
    """

    def __init__(self, config: ModelSection, *, is_horizontal: bool) -> None:
        self.config = config
        self.is_horizontal = is_horizontal
        self.by_enclosing = is_horizontal or config.roi_use_hbb_for_matching
        self.matcher = MaxIoUMatcher(
            positive=config.roi_positive_iou_threshold,
            negative=config.roi_negative_iou_threshold,
            min_positive=config.roi_min_pos_iou,
            low_quality=config.roi_match_low_quality,
        )

    @torch.no_grad()
    def __call__(self, proposals: Tensor, target: Target) -> SampledRegions:
        """Return a random choice of proposals of one image, with what they have to predict.

        Background proposals on look-alikes are chosen first. "On" one is a proposal with the IoU
        from which it were no background any more if the look-alike were an object: the head has
        to tell them apart from there on.

        Args:
            proposals: (R, 5) boxes, px and radians.
            target: Of the image.
        """
        config, gt = self.config, target["rboxes"]
        lookalikes = target.get("rboxes_lookalike", gt[:0])
        if config.add_gt_as_proposals:
            shown = torch.cat([gt, lookalikes])
            added = level_rboxes(rbox_to_hbox(shown)) if self.is_horizontal else shown
            proposals = torch.cat([added, proposals])
        overlaps = overlaps_horizontal if self.by_enclosing else overlaps_rotated
        outlines = self._outline(proposals)
        matches = self.matcher.match(self._outline(gt), outlines, overlaps)
        if "rboxes_ignore" in target:
            regions = self._outline(target["rboxes_ignore"])
            matches = ignore_covered(matches, regions, outlines, partial(overlaps, mode="iof"))
        is_lookalike = find_overlapping(
            outlines, self._outline(lookalikes), overlaps, config.roi_negative_iou_threshold
        )
        positive, negative = sample(
            matches,
            config.roi_batch_size_per_image,
            config.roi_positive_fraction,
            first=is_lookalike,
        )
        n_positive, n_background = int((matches >= 0).sum()), int((matches == BACKGROUND).sum())
        counts = {
            "pos": n_positive,
            "bg": n_background,
            "ignore": len(matches) - n_positive - n_background,
        }
        labels = torch.cat([target["labels"][matches[positive]], torch.zeros_like(negative)])
        chosen = proposals[torch.cat([positive, negative])]
        return SampledRegions(chosen, labels, gt[matches[positive]], counts)

    def _outline(self, rboxes: Tensor) -> Tensor:
        """Return the boxes whose overlaps count."""
        return rbox_to_hbox(rboxes) if self.by_enclosing else rboxes
