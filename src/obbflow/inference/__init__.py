"""Inference: images of any size -> detections, merged and exported."""

from obbflow.inference.detector import Detector, WindowSettings, load_detector
from obbflow.inference.export import geojson_files, task1_files
from obbflow.inference.images import find_images
from obbflow.inference.merge import merge_windows
from obbflow.inference.predict import predict_images

__all__ = [
    "Detector",
    "WindowSettings",
    "find_images",
    "geojson_files",
    "load_detector",
    "merge_windows",
    "predict_images",
    "task1_files",
]
