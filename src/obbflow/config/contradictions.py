"""Rules between keys: values that exclude each other, and values that nothing would look at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Parameters = Mapping[str, Mapping[str, Any]]
"""Section name -> key -> value, complete."""


@dataclass(frozen=True)
class _Condition:
    """What has to hold for keys of one section to count, and how to make it hold."""

    section: str
    keys: tuple[str, ...]
    holds: Callable[[Parameters], bool]
    advice: str


def find_contradictions(parameters: Parameters, defaults: Parameters) -> list[str]:
    """Return one line for each rule that does not hold.

    A key that another one switches off is a mistake only when its value is not the default: then
    somebody wants it to count.

    Args:
        parameters: All sections, each valid by itself.
        defaults: Their default values.
    """
    problems = []
    overlap, tiling = parameters["dataset"]["overlap"], parameters["tiling"]
    if overlap >= tiling["tile_size"]:
        problems.append(
            "dataset.overlap: must be smaller than tiling.tile_size, got "
            f"{overlap} and {tiling['tile_size']}"
        )
    elif overlap >= min(tiling["extra_tile_sizes"], default=overlap + 1):
        problems.append(
            "dataset.overlap: must be smaller than each of tiling.extra_tile_sizes, got "
            f"{overlap} and {tiling['extra_tile_sizes']}"
        )
    training = parameters["training"]
    warm_up = training["lr_warmup_steps"]
    if warm_up and training["lr_scheduler_type"] == "one_cycle":
        problems.append(
            f"training.lr_warmup_steps: one_cycle warms up by itself, got {warm_up} steps; set it "
            "to 0 or choose another training.lr_scheduler_type"
        )
    for condition in _CONDITIONS:
        if condition.holds(parameters):
            continue
        for key in condition.keys:
            value = parameters[condition.section][key]
            if value != defaults[condition.section][key]:
                problems.append(
                    f"{condition.section}.{key}: {value!r} would have no effect; "
                    f"{condition.advice}, or leave it out"
                )
    return problems


def _uses_softmax(parameters: Parameters) -> bool:
    """Return whether regions are classified by plain cross-entropy."""
    kind = parameters["loss"]["loss_type"]
    kind = parameters["model"]["roi_loss_type"] if kind == "none" else kind
    return kind in {"cross_entropy", "class_weighted"}


def _uses_roi_focal(parameters: Parameters) -> bool:
    """Return whether the focal loss of section ``model`` decides."""
    is_focal = parameters["model"]["roi_loss_type"] == "focal"
    return parameters["loss"]["loss_type"] == "none" and is_focal


_CONDITIONS = (
    _Condition(
        "loss",
        ("label_smoothing",),
        _uses_softmax,
        "focal losses are not smoothed: set loss.loss_type to cross_entropy or class_weighted",
    ),
    _Condition(
        "loss",
        ("focal_alpha", "focal_gamma"),
        lambda parameters: parameters["loss"]["loss_type"] in {"focal", "focal_weighted"},
        "set loss.loss_type to focal or focal_weighted",
    ),
    _Condition(
        "loss",
        ("background_weight", "class_weight_overrides"),
        lambda parameters: parameters["loss"]["loss_type"] in {"class_weighted", "focal_weighted"},
        "set loss.loss_type to class_weighted or focal_weighted",
    ),
    _Condition(
        "loss",
        ("class_weight_beta",),
        lambda parameters: parameters["loss"]["class_weight_method"] == "effective_num",
        "set loss.class_weight_method to effective_num",
    ),
    _Condition(
        "model",
        ("roi_loss_type",),
        lambda parameters: parameters["loss"]["loss_type"] == "none",
        "loss.loss_type decides: set it to none",
    ),
    _Condition(
        "model",
        ("roi_focal_alpha", "roi_focal_gamma"),
        _uses_roi_focal,
        "set loss.loss_type to none and model.roi_loss_type to focal",
    ),
    _Condition(
        "model",
        ("backbone_weights",),
        lambda parameters: bool(parameters["model"]["pretrained_backbone"]),
        "set model.pretrained_backbone to true",
    ),
    _Condition(
        "model",
        ("rpn_min_pos_iou",),
        lambda parameters: bool(parameters["model"]["rpn_match_low_quality"]),
        "set model.rpn_match_low_quality to true",
    ),
    _Condition(
        "model",
        ("roi_min_pos_iou",),
        lambda parameters: bool(parameters["model"]["roi_match_low_quality"]),
        "set model.roi_match_low_quality to true",
    ),
    _Condition(
        "preprocessing",
        ("random_rotate_prob", "random_rotate_angle_range", "random_rotate_rect_labels"),
        lambda parameters: bool(parameters["preprocessing"]["enable_random_rotate"]),
        "set preprocessing.enable_random_rotate to true",
    ),
    _Condition(
        "dataset",
        ("max_samples_shuffle_seed",),
        lambda parameters: any(
            parameters["dataset"][key] is not None
            for key in ("max_train_samples", "max_val_samples")
        ),
        "set dataset.max_train_samples or dataset.max_val_samples",
    ),
    _Condition(
        "dataset",
        ("hard_tile_metric_column", "hard_tile_threshold", "hard_tile_oversample_factor"),
        lambda parameters: parameters["dataset"]["tile_metrics_csv"] is not None,
        "set dataset.tile_metrics_csv",
    ),
    _Condition(
        "dataset",
        (
            "annotations_file",
            "split_file",
            "val_split_id",
            "train_includes_val",
            "difficult_tags",
        ),
        lambda parameters: parameters["dataset"]["format"] == "airbus_playground",
        "set dataset.format to airbus_playground",
    ),
    _Condition(
        "tiling",
        ("jpeg_quality", "jpeg_chroma"),
        lambda parameters: parameters["tiling"]["image_format"] == "jpg",
        "set tiling.image_format to jpg",
    ),
    _Condition(
        "tiling",
        ("min_image_rate",),
        lambda parameters: parameters["tiling"]["window_rule"] == "mmrotate",
        "set tiling.window_rule to mmrotate",
    ),
    _Condition(
        "tiling",
        ("scheduler_address",),
        lambda parameters: parameters["tiling"]["executor"] == "dask",
        "set tiling.executor to dask",
    ),
    _Condition(
        "training",
        ("lr_scheduler_milestones",),
        lambda parameters: parameters["training"]["lr_scheduler_type"] in {None, "multistep"},
        "set training.lr_scheduler_type to multistep",
    ),
    _Condition(
        "training",
        ("lr_mult_backbone", "lr_mult_rpn", "lr_mult_roi", "lr_mult_other"),
        lambda parameters: bool(parameters["training"]["use_lr_param_groups"]),
        "set training.use_lr_param_groups to true",
    ),
)
