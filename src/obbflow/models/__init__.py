"""Detectors of rotated boxes."""

from obbflow.models.build import build_model
from obbflow.models.weights import LoadReport, load_checkpoint

__all__ = ["LoadReport", "build_model", "load_checkpoint"]
