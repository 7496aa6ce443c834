"""Section ``evaluation``."""

from pydantic import Field

from obbflow.config.section import Section


class EvaluationSection(Section):
    """Which detections are scored, and when."""

    score_threshold: float = Field(
        0.5, ge=0, le=1, description="precision, recall and F1 count detections from this score"
    )
    iou_threshold: float = Field(0.5, gt=0, lt=1, description="a match for precision and recall")
    compute_map_every_n_epochs: int = Field(
        0,
        ge=0,
        description="validation, with mAP, after epochs divisible by n and after the last; 0: none",
    )
