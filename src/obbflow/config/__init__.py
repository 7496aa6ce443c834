"""Typed, validated configuration: one section a module."""

from obbflow.config.checkpoint import CheckpointSection
from obbflow.config.data_loader import DataLoaderSection
from obbflow.config.dataset import DatasetSection, DemoSection
from obbflow.config.evaluation import EvaluationSection
from obbflow.config.experiment import ExperimentSection
from obbflow.config.loss import LossSection
from obbflow.config.model import ModelSection
from obbflow.config.paths import PathsSection
from obbflow.config.preprocessing import PreprocessingSection
from obbflow.config.production import MODEL_OVERRIDES, ProductionSection
from obbflow.config.section import Section
from obbflow.config.sections import SECTIONS, fill_sections
from obbflow.config.tensorboard import TensorboardSection
from obbflow.config.tiling import TilingSection
from obbflow.config.training import TrainingSection

__all__ = [
    "MODEL_OVERRIDES",
    "SECTIONS",
    "CheckpointSection",
    "DataLoaderSection",
    "DatasetSection",
    "DemoSection",
    "EvaluationSection",
    "ExperimentSection",
    "LossSection",
    "ModelSection",
    "PathsSection",
    "PreprocessingSection",
    "ProductionSection",
    "Section",
    "TensorboardSection",
    "TilingSection",
    "TrainingSection",
    "fill_sections",
]
