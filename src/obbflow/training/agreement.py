"""Does a checkpoint mean by its weights what the present settings mean by them?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from obbflow.config import (
    MODEL_OVERRIDES,
    ExperimentSection,
    ModelSection,
    PreprocessingSection,
)
from obbflow.errors import CheckpointError

# Keys of section model that may differ from those of the training, as MODEL_OVERRIDES may, because
# they say how the weights were learnt, or where they came from. Every other key, a new one too,
# says what the weights mean.
_LEARNING_KEYS = (
    "add_gt_as_proposals",
    "backbone_weights",
    "freeze_batch_norm",
    "frozen_stages",
    "pretrained_backbone",
    "roi_box_reg_angle_schedule_epochs",
    "roi_box_reg_angle_schedule_values",
    "roi_box_reg_angle_weight",
    "roi_box_reg_iou_loss_type",
    "roi_box_reg_iou_schedule_epochs",
    "roi_box_reg_iou_schedule_values",
    "roi_box_reg_iou_weight",
    "roi_box_reg_kfiou_fun",
    "roi_box_reg_main_loss_type",
    "roi_box_reg_norm",
    "roi_box_reg_probiou_mode",
    "roi_box_reg_smooth_l1_aux_weight",
    "roi_batch_size_per_image",
    "roi_focal_alpha",
    "roi_focal_gamma",
    "roi_loss_type",
    "roi_match_low_quality",
    "roi_min_pos_iou",
    "roi_negative_iou_threshold",
    "roi_positive_fraction",
    "roi_positive_iou_threshold",
    "roi_chunk_size",
    "roi_use_checkpoint",
    "roi_use_hbb_for_matching",
    "final_nms_iou_threshold_schedule_epochs",
    "final_nms_iou_threshold_schedule_values",
    "rpn_allowed_border",
    "rpn_batch_size_per_image",
    "rpn_match_low_quality",
    "rpn_min_pos_iou",
    "rpn_negative_iou_threshold",
    "rpn_positive_fraction",
    "rpn_positive_iou_threshold",
    "trainable_layers",
)
# Of section preprocessing: what evaluation does to a tile too. The rest is augmentation.
_PIXEL_KEYS = ("resize_mode", "target_size", "normalize_mean", "normalize_std", "pad_size_divisor")


def check_agreement(
    path: Path,
    content: Mapping[str, Any],
    *,
    experiment: ExperimentSection,
    model: ModelSection,
    preprocessing: PreprocessingSection,
) -> None:
    """Refuse a checkpoint whose weights fit the model in shape, but not in what they mean.

    Args:
        path: The checkpoint, for the message.
        content: What it holds; without ``config`` nothing can be compared.
        experiment: Present settings: ``model_type`` is compared.
        model: All keys are, save those that only choose detections or only guide learning.
        preprocessing: What evaluation does to a tile is.

    Raises:
        CheckpointError: Naming every key that differs, with both values.
    """
    model_keys = set(ModelSection.model_fields).difference(MODEL_OVERRIDES, _LEARNING_KEYS)
    compared = (
        ("experiment", experiment, ("model_type",)),
        ("model", model, sorted(model_keys)),
        ("preprocessing", preprocessing, _PIXEL_KEYS),
    )
    stored = content.get("config") or {}
    differing = []
    for name, section, keys in compared:
        present, former = section.model_dump(mode="json"), stored.get(name) or {}
        differing += [
            f"{name}.{key} was {former[key]!r}, is {present[key]!r}"
            for key in keys
            if key in former and former[key] != present[key]
        ]
    if differing:
        raise CheckpointError(
            f"{path}: was trained with other settings, with which alone its weights make sense: "
            f"{'; '.join(differing)}. Set them back, or train again."
        )
