"""Section ``model``."""

from typing import Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from obbflow.config.section import Section

BoxTargets = tuple[float, float, float, float, float]
BoxScales = tuple[PositiveFloat, PositiveFloat, PositiveFloat, PositiveFloat, PositiveFloat]


class ModelSection(Section):
    """Oriented R-CNN: backbone, feature pyramid, proposals and region head."""

    # Backbone
    backbone: Literal["resnet18", "resnet34", "resnet50", "resnet101"] = "resnet50"
    backbone_width: float = Field(
        1.0, gt=0, le=1, description="factor on the channels of every stage; 1.0 as published"
    )
    pretrained_backbone: bool = Field(True, description="start from torchvision's ImageNet weights")
    backbone_weights: str | None = Field(
        None, description="file with the backbone's weights; null: torchvision's cache"
    )
    trainable_layers: int = Field(
        5, ge=0, le=5, description="stages that learn, from the last; 5: stem included"
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

    # Inference
    inference_pre_nms_score_threshold: float = Field(0.05, ge=0, le=1)
    final_nms_iou_threshold: float = Field(0.5, gt=0, le=1)
    nms_class_agnostic: bool = False
    max_detections_per_image: int = Field(100, ge=1)

    @model_validator(mode="after")
    def _positive_is_above_negative(self) -> Self:
        for part in ("rpn", "roi"):
            positive = getattr(self, f"{part}_positive_iou_threshold")
            negative = getattr(self, f"{part}_negative_iou_threshold")
            if positive < negative:
                raise ValueError(
                    f"{part}_positive_iou_threshold: must not be below "
                    f"{part}_negative_iou_threshold, got {positive} and {negative}"
                )
        return self
