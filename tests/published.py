"""Published models of the golden folder, written to a file as MMRotate writes its checkpoints."""

import importlib.util
import json
from collections import OrderedDict
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

DOTA = [
    "plane",
    "baseball-diamond",
    "bridge",
    "ground-track-field",
    "small-vehicle",
    "large-vehicle",
    "ship",
    "tennis-court",
    "basketball-court",
    "storage-tank",
    "soccer-ball-field",
    "roundabout",
    "harbor",
    "swimming-pool",
    "helicopter",
]


def weights_maker(golden: Path) -> ModuleType:
    """Return the golden folder's script that makes weights and images."""
    spec = importlib.util.spec_from_file_location("make_weights", golden / "make_weights.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def published_weights(keys_json: Path) -> "OrderedDict[str, Tensor]":
    """Return the state dict that belongs to ``keys_NAME.json``, under MMRotate's names."""
    shapes = json.loads(keys_json.read_text(encoding="utf-8"))["shapes"]
    made = weights_maker(keys_json.parent).make_state_dict(shapes)
    return OrderedDict((name, torch.from_numpy(value)) for name, value in made.items())


def publish(keys_json: Path, folder: Path, **meta: object) -> Path:
    """Write these weights below ``folder`` like a checkpoint of MMRotate 0.x and return its path.

    Args:
        keys_json: ``keys_NAME.json`` of the golden folder.
        folder: Takes ``NAME.pth``.
        **meta: Entries of ``meta`` to add or to replace.
    """
    described = {
        "mmrotate_version": "0.3.4",
        "config": "angle_version = 'le90'\n",
        "CLASSES": tuple(DOTA),
        "epoch": 12,
        **meta,
    }
    path = folder / f"{keys_json.stem.removeprefix('keys_')}.pth"
    torch.save({"meta": described, "state_dict": published_weights(keys_json)}, path)
    return path
