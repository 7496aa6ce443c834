"""Published models of the golden folder: weights as MMRotate writes them, inputs and results."""

import importlib.util
import json
from collections import OrderedDict
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from obbflow.data.formats.dota_classes import DOTA_CLASSES
from obbflow.geometry import rbox_to_qbox
from obbflow.models import load_checkpoint

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


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
        "CLASSES": DOTA_CLASSES["1.0"],
        "epoch": 12,
        **meta,
    }
    path = folder / f"{keys_json.stem.removeprefix('keys_')}.pth"
    torch.save({"meta": described, "state_dict": published_weights(keys_json)}, path)
    return path


class PublishedModel:
    """One published model: our copy of it, and what MMRotate computed with it.

    Args:
        golden: The golden folder.
        name: Such as "rotated_fcos_r18".
        model: Ours; takes the weights, through a file such as MMRotate publishes.
        scratch: Folder for that file.
    """

    def __init__(self, golden: Path, name: str, model: nn.Module, scratch: Path) -> None:
        self.name = name
        self.maker = weights_maker(golden)
        self.facts = json.loads((golden / f"model_{name}.json").read_text(encoding="utf-8"))
        with np.load(golden / f"model_{name}.npz") as arrays:
            self.arrays = {key: torch.from_numpy(value) for key, value in arrays.items()}
        self.model = model
        load_checkpoint(publish(golden / f"keys_{name}.json", scratch), model, strict=True)

    def images(self, case: str) -> list[Tensor]:
        images = []
        for image in self.facts["cases"][case]:
            bgr = self.maker.make_image(*image["size"], image["variant"])
            rgb = torch.from_numpy(bgr).float().flip(2)
            images.append(((rgb - torch.tensor(MEAN)) / torch.tensor(STD)).permute(2, 0, 1))
        return images

    def targets(self, case: str) -> list[dict[str, Tensor]]:
        return [
            {
                "rboxes": torch.tensor([row[:5] for row in rows], dtype=torch.float32),
                "labels": torch.tensor([int(row[5]) + 1 for row in rows]),
            }
            for rows in self.facts["gt"][case]
        ]

    def sizes(self, case: str) -> list[tuple[int, int]]:
        return [tuple(image["size"]) for image in self.facts["cases"][case]]

    def per_image(self, case: str, what: str) -> list[Tensor]:
        count = len(self.facts["cases"][case])
        return [self.arrays[f"{case}_{image}_{what}"] for image in range(count)]


def assert_statistics(values: Tensor, facts: dict[str, float]) -> None:
    """Compare with recorded statistics, 1e-4 relative; of the mean to the spread around it."""
    values = values.double()
    spread = facts["std"]
    assert values.std(correction=0).item() == pytest.approx(spread, rel=1e-4)
    assert values.mean().item() == pytest.approx(facts["mean"], abs=1e-4 * spread)
    assert values.abs().sum().item() == pytest.approx(facts["abs_sum"], rel=1e-4)
    assert values.min().item() == pytest.approx(facts["min"], rel=1e-4)
    assert values.max().item() == pytest.approx(facts["max"], rel=1e-4)


def assert_features(
    golden: PublishedModel, case: str, backbone: list[Tensor], levels: list[Tensor]
) -> None:
    """Compare the features of backbone and pyramid with the recorded ones."""
    facts = golden.facts["inference"][case]
    for ours, recorded in zip([*backbone, *levels], facts["backbone"] + facts["fpn"], strict=True):
        assert list(ours.shape) == recorded["shape"]
        assert_statistics(ours, recorded)
    # Values reach 25: 1e-3 is 4e-5 of that, and two runs of MMRotate differ by 2e-5.
    torch.testing.assert_close(levels[-1], golden.arrays[f"{case}_fpn_last"], rtol=0, atol=1e-3)
    sample = torch.stack([level[0, :8, :2, :2] for level in levels])
    torch.testing.assert_close(sample, golden.arrays[f"{case}_fpn_sample"], rtol=0, atol=1e-3)


def corner_distance(a: Tensor, b: Tensor) -> Tensor:
    """Return (N,) px: how far corners of rectangles lie apart, whichever is called the first."""
    a, b = (rbox_to_qbox(boxes.double()).reshape(-1, 4, 2) for boxes in (a, b))
    shifted = [(a - b.roll(step, dims=1)).norm(dim=2).amax(dim=1) for step in range(4)]
    return torch.stack(shifted).amin(dim=0)


def unpaired(boxes: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor) -> Tensor:
    """Return (N,) bool: no box of the same class within 0.05 px among the others."""
    row, column = (labels[:, None] == other_labels[None]).nonzero(as_tuple=True)
    is_near = corner_distance(boxes[row], others[column]) < 0.05
    return torch.ones(len(boxes), dtype=torch.bool).index_fill(0, row[is_near], value=False)
