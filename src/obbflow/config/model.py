"""Section ``model``."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from obbflow.config.section import Section

BoxTargets = tuple[float, float, float, float, float]
BoxScales = tuple[PositiveFloat, PositiveFloat, PositiveFloat, PositiveFloat, PositiveFloat]


Epochs = tuple[Annotated[int, Field(ge=0)], ...]
Weights = tuple[Annotated[float, Field(ge=0)], ...]
Thresholds = tuple[Annotated[float, Field(gt=0, le=1)], ...]
SCHEDULED = {
    "roi_box_reg_angle": "roi_box_reg_angle_weight",
    "roi_box_reg_iou": "roi_box_reg_iou_weight",
    "final_nms_iou_threshold": "final_nms_iou_threshold",
}
"""Start of ``_schedule_epochs`` and ``_schedule_values`` -> the key whose value they change."""


BackboneName = Literal[
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "resnext101_32x8d",
    "wide_resnet50_2",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "efficientnet_b1",
    "efficientnet_b2",
    "efficientnet_b3",
    "efficientnet_v2_s",
    "regnet_y_400mf",
    "regnet_y_800mf",
    "regnet_y_1_6gf",
    "regnet_y_3_2gf",
    "convnext_tiny",
    "convnext_small",
    "convnext_base",
    "swin_t",
    "swin_s",
    "densenet121",
]
"""As torchvision names them; ``obbflow.models.backbones`` builds them."""


class ModelSection(Section):
    """Backbone, feature pyramid and heads; each detector looks at the keys of its own parts."""

    # Backbone
    backbone: BackboneName = "resnet50"
    backbone_width: float = Field(
        1.0, gt=0, le=1, description="resnetN: factor on all channels; 1.0 as published"
    )
    pretrained_backbone: bool = Field(True, description="start from torchvision's ImageNet weights")
    backbone_weights: str | None = Field(
        None, description="file with the backbone's weights; null: torchvision's cache"
    )
    trainable_layers: int = Field(
        5, ge=0, le=5, description="stages that learn, from the last; 5: stem included"
    )
    frozen_stages: int | None = Field(
        None,
        ge=-1,
        le=4,
        description="the stem and this many stages do not learn; -1: none; null: trainable_layers",
    )
    freeze_batch_norm: bool = Field(
        True, description="batch norm normalises by its stored statistics, as in fine-tuning"
    )

    # Feature pyramid
    fpn_channels: int = Field(256, ge=8)

    # Anchors: every scale x ratio, at each cell of each level
    anchor_scales: tuple[PositiveFloat, ...] = Field(
        (8.0, 16.0, 32.0), min_length=1, description="anchor side over the level's stride"
    )
    anchor_ratios: tuple[PositiveFloat, ...] = Field((0.5, 1.0, 2.0), min_length=1)

    # Region proposal network
    rpn_min_size: float = Field(0.0, ge=0, description="proposals with a smaller side are dropped")
    rpn_pre_nms_top_n: int = Field(2000, ge=1, description="a level")
    rpn_post_nms_top_n: int = Field(1000, ge=1, description="an image")
    rpn_nms_threshold: float = Field(0.7, gt=0, le=1)
    rpn_batch_size_per_image: int = Field(256, ge=2)
    rpn_positive_fraction: float = Field(0.5, gt=0, le=1)
    rpn_positive_iou_threshold: float = Field(0.7, gt=0, le=1)
    rpn_negative_iou_threshold: float = Field(0.3, gt=0, le=1)
    rpn_min_pos_iou: float = Field(0.3, ge=0, le=1)
    rpn_match_low_quality: bool = True
    rpn_allowed_border: float | None = Field(
        0.0, description="px an anchor may cross the image's border and still learn; null: any"
    )

    # Region head
    roi_output_size: int = Field(7, ge=2)
    roi_sampling_ratio: int = Field(2, ge=0, description="samples a bin and axis; 0: adaptive")
    roi_fc_channels: int = Field(1024, ge=16)
    roi_batch_size_per_image: int = Field(512, ge=2)
    roi_positive_fraction: float = Field(0.25, gt=0, le=1)
    roi_positive_iou_threshold: float = Field(0.5, gt=0, le=1)
    roi_negative_iou_threshold: float = Field(0.5, gt=0, le=1)
    roi_match_low_quality: bool = False
    roi_min_pos_iou: float = Field(0.5, ge=0, le=1)
    add_gt_as_proposals: bool = True
    target_means: BoxTargets = Field((0.0, 0.0, 0.0, 0.0, 0.0), description="dx, dy, dw, dh, da")
    target_stds: BoxScales = Field((0.1, 0.1, 0.2, 0.2, 0.1), description="dx, dy, dw, dh, da")
    roi_loss_type: Literal["cross_entropy", "focal"] = "cross_entropy"
    roi_focal_alpha: float = Field(1.0, gt=0)
    roi_focal_gamma: float = Field(2.0, ge=0)
    roi_norm_factor: float | None = Field(
        2.0, gt=0, description="angle deltas are divided by norm_factor x pi; null: radians"
    )
    roi_edge_swap: bool = True
    roi_proj_xy: bool = Field(False, description="centre deltas along the box's own axes")
    roi_use_hbb_for_matching: bool = Field(
        False, description="match regions by the IoU of enclosing boxes instead of rotated ones"
    )
    roi_box_reg_main_loss_type: Literal["smooth_l1", "iou"] = Field(
        "smooth_l1", description="of the box deltas, or of the decoded boxes"
    )
    roi_box_reg_norm: Literal["sampled_all", "sampled_positive"] = Field(
        "sampled_all", description="the box loss is divided by the number of these regions"
    )
    roi_box_reg_angle_weight: float = Field(
        1.0, ge=0, description="factor on the smooth L1 loss of the angle delta"
    )
    roi_box_reg_angle_schedule_epochs: Epochs | None = Field(
        None, description="from each of these epochs on the value below it counts"
    )
    roi_box_reg_angle_schedule_values: Weights | None = None
    roi_box_reg_iou_loss_type: Literal["riou", "kfiou", "probiou"] = "riou"
    roi_box_reg_iou_weight: float = Field(
        0.0, ge=0, description="with smooth_l1 as the main loss: of the loss of decoded boxes"
    )
    roi_box_reg_iou_schedule_epochs: Epochs | None = None
    roi_box_reg_iou_schedule_values: Weights | None = None
    roi_box_reg_kfiou_fun: Literal["ln", "exp"] | None = Field(
        None, description="of the KFIoU k: -log(k), exp(1 - k) - 1, or null: 1 - k"
    )
    roi_box_reg_probiou_mode: Literal["l1", "l2"] | None = Field(
        None, description="l1: Hellinger distance, as null; l2: Bhattacharyya distance"
    )
    roi_box_reg_smooth_l1_aux_weight: float = Field(
        0.0, ge=0, description="with iou as the main loss: of the smooth L1 loss of the deltas"
    )
    roi_chunk_size: int | None = Field(
        None, ge=1, description="regions pooled at once: bounds memory; null: all of a batch"
    )
    roi_use_checkpoint: bool = Field(
        False, description="pool and classify again in the backward pass: less memory, more time"
    )

    # Inference
    inference_pre_nms_score_threshold: float = Field(0.05, ge=0, le=1)
    roi_inference_top_class_only: bool = Field(
        False, description="one class a region, its most likely one; false: all above the floor"
    )
    final_nms_iou_threshold: float = Field(0.5, gt=0, le=1)
    final_nms_iou_threshold_schedule_epochs: Epochs | None = None
    final_nms_iou_threshold_schedule_values: Thresholds | None = None
    final_nms_use_cpu: bool = Field(False, description="suppress on the CPU whatever the device")
    nms_class_agnostic: bool = False
    max_detections_per_image: int = Field(100, ge=1)

    # One-stage detectors: Rotated RetinaNet and Rotated FCOS
    one_stage_pre_nms_top_n: int = Field(2000, ge=1, description="a level")
    one_stage_focal_alpha: float = Field(
        0.25, gt=0, lt=1, description="weight of a prior's own class; 1 - alpha: of the others"
    )
    one_stage_focal_gamma: float = Field(2.0, ge=0)
    box_reg_weight: float = Field(1.0, ge=0, description="factor on the box loss")
    # RetinaNet: anchor_ratios x scales of an octave, at each cell of P3 .. P7
    anchor_octave_base_scale: PositiveFloat | None = Field(
        None, description="smallest anchor side over the level's stride; null: 4, as published"
    )
    anchor_scales_per_octave: int | None = Field(None, ge=1, description="null: 3, as published")
    use_hbb_for_matching: bool = Field(
        True, description="match anchors by the IoU of enclosing boxes instead of rotated ones"
    )
    retinanet_stacked_convs: int = Field(4, ge=1, description="layers of each tower")
    retinanet_anchor_angle: Literal["le90", "zero"] = Field(
        "le90", description="le90: MMRotate 1.x; zero: 0.x and its published checkpoints"
    )
    retinanet_positive_iou_threshold: float = Field(0.5, gt=0, le=1)
    retinanet_negative_iou_threshold: float = Field(0.4, gt=0, le=1)
    box_reg_loss_type: Literal["smooth_l1", "l1", "riou", "kfiou", "probiou", "gwd", "kld"] = Field(
        "smooth_l1", description="of the deltas, or of the decoded boxes; l1 as published"
    )
    # FCOS
    fcos_centre_radius: float = Field(
        1.5, gt=0, le=16, description="cells around an object's centre that have to find it"
    )
    fcos_box_loss_type: Literal["riou", "probiou", "gwd", "kld"] = "riou"

    @property
    def learning_layers(self) -> int:
        """How many of (stage 4, 3, 2, 1, stem) learn, whichever key says so."""
        return self.trainable_layers if self.frozen_stages is None else 4 - self.frozen_stages

    @model_validator(mode="after")
    def _backbone_keys_agree(self) -> Self:
        if self.backbone_width != 1 and not self.backbone.startswith("resnet"):
            raise ValueError(
                f"backbone_width: only resnet18 .. resnet152 can be narrowed, got "
                f"{self.backbone_width} with {self.backbone}; set it to 1"
            )
        if self.trainable_layers not in {self.learning_layers, 5}:  # 5, the default, asks nothing
            raise ValueError(
                f"frozen_stages: {self.frozen_stages} lets the last {self.learning_layers} layers "
                f"learn, but trainable_layers is {self.trainable_layers}; leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _positive_is_above_negative(self) -> Self:
        for part in ("rpn", "roi", "retinanet"):
            positive = getattr(self, f"{part}_positive_iou_threshold")
            negative = getattr(self, f"{part}_negative_iou_threshold")
            if positive < negative:
                raise ValueError(
                    f"{part}_positive_iou_threshold: must not be below "
                    f"{part}_negative_iou_threshold, got {positive} and {negative}"
                )
        return self

    @model_validator(mode="after")
    def _schedules_are_pairs(self) -> Self:
        for key in SCHEDULED:
            epochs, values = self._schedule(key)
            if (epochs is None) != (values is None) or len(epochs or ()) != len(values or ()):
                raise ValueError(
                    f"{key}_schedule_epochs and {key}_schedule_values: must be two lists of one "
                    f"length, got {epochs} and {values}"
                )
            if epochs is not None and list(epochs) != sorted(set(epochs)):
                raise ValueError(f"{key}_schedule_epochs: must rise, got {list(epochs)}")
        return self

    def at_epoch(self, epoch: int) -> Self:
        """Return the section with the values that its schedules have at an epoch, and no schedule.

        The last entry counts whose epoch is not after this one; before the first, the key itself.

        Args:
            epoch: From 1; 0 before training.
        """
        changes: dict[str, float | None] = {}
        for key, base_key in SCHEDULED.items():
            epochs, values = self._schedule(key)
            reached = [
                value
                for start, value in zip(epochs or (), values or (), strict=True)
                if start <= epoch
            ]
            changes[base_key] = reached[-1] if reached else getattr(self, base_key)
            changes |= dict.fromkeys((f"{key}_schedule_epochs", f"{key}_schedule_values"))
        return self.model_copy(update=changes)

    def _schedule(self, key: str) -> tuple[Epochs | None, tuple[float, ...] | None]:
        """Return epochs and values of a schedule, both None without one."""
        return getattr(self, f"{key}_schedule_epochs"), getattr(self, f"{key}_schedule_values")
