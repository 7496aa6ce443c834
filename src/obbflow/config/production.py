"""Section ``production``."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from obbflow.config.model import ModelSection
from obbflow.config.section import Section

Score = Annotated[float, Field(ge=0, le=1)]


class ProductionSection(Section):
    """Looking at new images; null takes the value that the checkpoint was trained with."""

    images: Path | None = Field(
        None, description="image file, or folder of images, to look at; folders inside count too"
    )

    # Which detections stay
    score_threshold: Score | None = Field(
        None, description="lower scores are left out; null: evaluation.score_threshold"
    )
    per_class_score_threshold: dict[str, Score] | None = Field(
        None, description="class name -> threshold, in the place of score_threshold"
    )
    final_nms_iou_threshold: float | None = Field(
        None, gt=0, le=1, description="within a window, and again when windows are merged"
    )
    final_nms_use_cpu: bool | None = None
    nms_class_agnostic: bool | None = None
    roi_inference_top_class_only: bool | None = None
    inference_pre_nms_score_threshold: Score | None = None
    max_detections_per_image: int | None = Field(None, ge=1, description="a window")

    # Proposals
    rpn_pre_nms_top_n: int | None = Field(None, ge=1, description="a level")
    rpn_post_nms_top_n: int | None = Field(None, ge=1, description="a window")
    rpn_nms_threshold: float | None = Field(None, gt=0, le=1)

    # Windows: squares of the side of the training tiles, tiling.tile_size
    overlap_pixels: int | None = Field(
        None,
        ge=0,
        description="of neighbouring windows, less than their side; null: 200, at most half the "
        "side",
    )
    ignore_margin_pixels: float | None = Field(
        None,
        ge=0,
        description="a detection centred so close to a border with a neighbouring window is left "
        "to that window; at most half the overlap; null: half of dataset.overlap; 0: off",
    )


MODEL_OVERRIDES = tuple(
    name for name in ModelSection.model_fields if name in ProductionSection.model_fields
)
"""Keys of section ``model`` that choose detections and say nothing about the weights."""
