"""A toy detector and data set: small enough to train in milliseconds, complete in its interface."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from obbflow.config import SECTIONS
from obbflow.structures import Target, collate
from obbflow.tables import GROUND_TRUTH, RBOX, TILE_ANNOTATIONS, TILE_INDEX, make_table

if TYPE_CHECKING:
    from obbflow.training.run import RunSections, TrainingData

SIZE = 16  # px
CLASSES = ("plane", "ship")


class ToyDetector(nn.Module):
    """Finds one box an image: position and class from the mean colour; with a random part."""

    def __init__(self, *, dropout: float = 0.2) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.rpn_head = nn.Linear(8, 4)
        self.roi_head = nn.Linear(8, len(CLASSES))
        self.scale = nn.Parameter(torch.ones(()))
        self.dropout = dropout

    def forward(self, images, targets=None):
        features = self.backbone(torch.stack(list(images))).mean(dim=(2, 3))
        if self.training:
            features = nn.functional.dropout(features, self.dropout)
        boxes = self.rpn_head(features) * self.scale * SIZE
        logits = self.roi_head(features)
        if self.training:
            truth = torch.stack([target["rboxes"][0, :4] for target in targets])
            labels = torch.stack([target["labels"][0] - 1 for target in targets])
            self.diagnostics = {"roi_num_pos": torch.tensor(float(len(truth)))}
            return {
                "loss_box": nn.functional.smooth_l1_loss(boxes / SIZE, truth / SIZE),
                "loss_class": nn.functional.cross_entropy(logits, labels),
            }
        return [self._detect(box, logit) for box, logit in zip(boxes, logits, strict=True)]

    def _detect(self, box: Tensor, logit: Tensor):
        side = box[2:].clamp(min=1)
        rboxes = torch.cat([box[:2], side.sort(descending=True).values, box.new_zeros(1)])[None]
        scores = logit.softmax(0)
        label = scores.argmax()
        return {"rboxes": rboxes, "scores": scores[label][None], "labels": label[None] + 1}


class ToyData(Dataset):
    """Images whose colour tells the class, each with one box."""

    class_names = CLASSES

    def __init__(self, length: int = 10, *, nan_rows: tuple[int, ...] = ()) -> None:
        generator = torch.Generator().manual_seed(length)
        self.labels = torch.arange(length) % len(CLASSES) + 1
        self.images = torch.rand(length, 3, SIZE, SIZE, generator=generator)
        self.images[:, 0] += self.labels[:, None, None].float()
        self.images[list(nan_rows)] = float("nan")
        self.tile_ids = [f"tile_{row}" for row in range(length)]
        self.rboxes = torch.tensor([[8.0, 8.0, 8.0, 4.0, 0.0]]).repeat(length, 1)
        self.rboxes[:, 0] += self.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, Target]:
        target = Target(
            rboxes=self.rboxes[row][None],
            labels=self.labels[row][None],
            index=torch.tensor(row),
            scale=torch.ones(2),
        )
        return self.images[row], target

    @property
    def ground_truth(self) -> pd.DataFrame:
        columns = {name: self.rboxes[:, place].numpy() for place, name in enumerate(RBOX)}
        names = [CLASSES[label - 1] for label in self.labels.tolist()]
        rows = {"image_id": self.tile_ids, "class_name": names, **columns, "difficult": False}
        return make_table(rows, GROUND_TRUTH)


class KeyedData(ToyData):
    """Takes the keys (index, epoch) of `EpochSampler`, with noise of its own in each epoch."""

    def __getitem__(self, key):
        row, epoch = key
        image, target = super().__getitem__(row)
        noise = torch.Generator().manual_seed(1000 * epoch + row)
        return image + 0.1 * torch.rand(image.shape, generator=noise), target


def toy_loader(dataset: Dataset, batch_size: int = 2, **options) -> DataLoader:
    return DataLoader(dataset, batch_size=batch_size, collate_fn=collate, **options)


def toy_tiles(folder: Path, tiles: int = 6) -> "TrainingData":
    """Write tile files of the two classes and return their tables; every third tile validates."""
    from obbflow.training.run import TrainingData

    folder.mkdir(parents=True, exist_ok=True)
    names = [f"t{number}" for number in range(tiles)]
    classes = [CLASSES[number % len(CLASSES)] for number in range(tiles)]
    for number, name in enumerate(names):
        pixels = np.full((SIZE, SIZE, 3), 40 + 10 * number, dtype=np.uint8)
        pixels[4:12, 4:12, number % len(CLASSES)] = 250
        Image.fromarray(pixels).save(folder / f"{name}.png")
    index = make_table(
        {
            "tile_id": names,
            "image_id": names,
            "split": ["val" if number % 3 == 2 else "train" for number in range(tiles)],
            "x": 0,
            "y": 0,
            "width": SIZE,
            "height": SIZE,
            "path": [str(folder / f"{name}.png") for name in names],
            "n_objects": 1,
            "scale": 1.0,
        },
        TILE_INDEX,
    )
    box = {"cx": 8.0, "cy": 8.0, "w": 8.0, "h": 8.0, "angle": 0.0}
    kinds = dict.fromkeys(("difficult", "ignore", "lookalike"), False)
    flags = {**kinds, "iof": 1.0, "object_id": range(tiles)}
    rows = {"tile_id": names, "class_name": classes, **box, **flags}
    weights = pd.DataFrame({"class_name": CLASSES, "weight": [0.5, 1.5]})
    class_map = {name: number for number, name in enumerate(CLASSES, start=1)}
    return TrainingData(index, make_table(rows, TILE_ANNOTATIONS), class_map, weights)


def toy_sections(data_dir: Path, **changes: dict) -> "RunSections":
    """Return sections of a run of two epochs on a CPU, with ``changes`` by section."""
    from obbflow.training.run import RunSections

    values = {
        "paths": {"data_dir": data_dir},
        "dataset": {"format": "synthetic"},
        "preprocessing": {"target_size": (SIZE, SIZE)},
        "data_loader": {"batch_size": 2, "num_workers": 0},
        "training": {
            "num_epochs": 2,
            "accelerator": "cpu",
            "lr_warmup_steps": 0,
            "learning_rate": 0.01,
            "gradient_accumulation_steps": 1,
        },
        "evaluation": {"compute_map_every_n_epochs": 1},
        "tensorboard": {"enabled": False},
    }
    for name, keys in changes.items():
        values[name] = values.get(name, {}) | keys
    return RunSections(
        **{
            field.name: SECTIONS[field.name].model_validate(values.get(field.name, {}))
            for field in fields(RunSections)
        }
    )
