"""Average precision of oriented boxes, and what a score threshold makes of it."""

from obbflow.evaluation.average_precision import Interpolation, average_precision
from obbflow.evaluation.final import FinalScores, score_final
from obbflow.evaluation.scoring import EvaluationResult, evaluate_detections
from obbflow.evaluation.thresholds import (
    COCO_THRESHOLDS,
    count_hits,
    score_tiles,
    tabulate_classes,
)

__all__ = [
    "COCO_THRESHOLDS",
    "EvaluationResult",
    "FinalScores",
    "Interpolation",
    "average_precision",
    "count_hits",
    "evaluate_detections",
    "score_final",
    "score_tiles",
    "tabulate_classes",
]
