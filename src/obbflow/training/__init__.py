"""Training loops: from a model and a loader to checkpoints and metrics."""

from obbflow.training.checkpoints import CheckpointManager
from obbflow.training.epoch import EpochTools, train_one_epoch
from obbflow.training.loop import LoopSettings, TrainingOutcome, train
from obbflow.training.metrics import MetricTracker
from obbflow.training.schedules import build_scheduler, lr_schedule
from obbflow.training.validate import evaluate, predict_dataset

__all__ = [
    "CheckpointManager",
    "EpochTools",
    "LoopSettings",
    "MetricTracker",
    "TrainingOutcome",
    "build_scheduler",
    "evaluate",
    "lr_schedule",
    "predict_dataset",
    "train",
    "train_one_epoch",
]
