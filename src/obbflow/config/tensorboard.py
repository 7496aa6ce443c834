"""Section ``tensorboard``."""

from pydantic import Field

from obbflow.config.section import Section


class TensorboardSection(Section):
    """What TensorBoard shows beside the scalars."""

    enabled: bool = True
    log_images: bool = Field(True, description="validation images with truth and detections")
    max_images_to_log: int = Field(4, ge=1)
    vis_score_threshold: float | None = Field(
        None, ge=0, le=1, description="null: evaluation.score_threshold"
    )
