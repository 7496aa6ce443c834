"""Detections of a data set, and how good they are."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pandas as pd
import torch
from torch import Tensor, nn

from obbflow.config import EvaluationSection
from obbflow.evaluation import COCO_THRESHOLDS, evaluate_detections
from obbflow.geometry import scale_rboxes
from obbflow.structures import Detections, Target, move_to
from obbflow.tables import DETECTIONS, RBOX, make_table
from obbflow.training.device import Runtime

METRICS = ("mAP", "AP50", "AP75", "AP50_95")

Batches = Iterable[tuple[Sequence[Tensor], Sequence[Target]]]


class TileSource(Protocol):
    """What evaluation asks of a data set, `obbflow.data.tile_dataset.TileDataset` for one."""

    @property
    def tile_ids(self) -> Sequence[str]:
        """Names of the samples, in their order."""

    @property
    def class_names(self) -> Sequence[str]:
        """Names of the labels 1..C."""

    @property
    def ground_truth(self) -> pd.DataFrame:
        """Table ``GROUND_TRUTH`` in the tiles' own px; ``image_id`` is the tile's id."""


def predict_dataset(
    model: nn.Module,
    loader: Batches,
    dataset: TileSource,
    device: torch.device,
    *,
    autocast_dtype: torch.dtype | None = None,
) -> pd.DataFrame:
    """Return the detections of every sample, each looked at once.

    Images of one size share a forward pass, and others never do: what the model finds does not
    depend on how far a larger neighbour pads an image.

    Args:
        model: In evaluation mode it returns one ``Detections`` an image. It is left in the mode
            that it was in.
        loader: Batches of (images, targets) in any order. ``target["index"]`` is the sample's
            row (without it: samples come in order), ``target["scale"]`` px of the image per px of
            the tile.
        dataset: Names the samples and the labels.
        device: Where ``model`` is.
        autocast_dtype: Type of mixed precision, None for float32.

    Returns:
        Table ``DETECTIONS``: ``image_id`` is the tile's id, boxes are in the tile's own px; in the
        order of the samples, best score first within one.

    Raises:
        ValueError: If a sample comes twice or not at all.
    """
    runtime = Runtime(device, autocast_dtype)
    found: dict[int, Detections] = {}
    was_training = model.training
    model.eval()
    try:
        for images, targets in loader:
            indices = _sample_indices(targets, start=len(found))
            detections = _predict_batch(model, images, targets, runtime, dataset, indices)
            twice = [dataset.tile_ids[index] for index in indices if index in found]
            if twice:
                raise ValueError(f"the loader gave tile {twice[0]} twice")
            found.update(zip(indices, detections, strict=True))
    finally:
        model.train(was_training)
    missing = [name for index, name in enumerate(dataset.tile_ids) if index not in found]
    if missing:
        raise ValueError(f"the loader left out {len(missing)} tiles, the first is {missing[0]}")
    return _tabulate(found, dataset)


def evaluate(
    model: nn.Module,
    loader: Any,  # noqa: ANN401  (a DataLoader, whose data set torch types only by its samples)
    evaluation: EvaluationSection | None = None,
    *,
    runtime: Runtime | None = None,
) -> dict[str, float]:
    """Return how well ``model`` detects the objects of ``loader.dataset``.

    Args:
        model: As for ``predict_dataset``.
        loader: A ``DataLoader`` over a `TileSource`.
        evaluation: ``iou_threshold`` is that of ``mAP``.
        runtime: Where ``model`` is and in which precision it computes; None: CPU, float32.

    Returns:
        ``mAP``, ``AP50``, ``AP75``, ``AP50_95`` and ``AP_<class>``. What cannot be computed
        (a class without an object) is absent.
    """
    runtime = runtime or Runtime()
    detections = predict_dataset(
        model, loader, loader.dataset, runtime.device, autocast_dtype=runtime.autocast_dtype
    )
    return score_detections(detections, loader.dataset, evaluation or EvaluationSection())


def score_detections(
    detections: pd.DataFrame, dataset: TileSource, evaluation: EvaluationSection
) -> dict[str, float]:
    """Return the metrics of a table of detections, see ``evaluate``."""
    main = evaluation.iou_threshold
    thresholds = sorted({main, *COCO_THRESHOLDS})
    result = evaluate_detections(
        detections, dataset.ground_truth, list(dataset.class_names), thresholds
    )
    metrics = {
        "mAP": result.mean_ap_at(main),
        "AP50": result.mean_ap_at(0.5),
        "AP75": result.mean_ap_at(0.75),
        "AP50_95": result.mean_ap_at(*COCO_THRESHOLDS),
    }
    by_class = result.ap_per_class[main]
    metrics |= {f"AP_{name}": float(value) for name, value in by_class.items()}
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def _sample_indices(targets: Sequence[Target], start: int) -> list[int]:
    return [int(target.get("index", start + place)) for place, target in enumerate(targets)]


@torch.inference_mode()
def _predict_batch(
    model: nn.Module,
    images: Sequence[Tensor],
    targets: Sequence[Target],
    runtime: Runtime,
    dataset: TileSource,
    indices: Sequence[int],
) -> list[Detections]:
    """Return detections on the CPU, in px of the tiles; an error names the tiles."""
    found: dict[int, Detections] = {}
    for places in _group_by_size(images):
        try:
            on_device, _ = move_to([images[place] for place in places], [], runtime.device)
            with runtime.autocast():
                detections = model(on_device)
        except Exception as error:
            names = ", ".join(dataset.tile_ids[indices[place]] for place in places)
            error.add_note(f"while detecting objects in the tiles {names}")
            raise
        found |= {
            place: _to_tile(each, targets[place])
            for place, each in zip(places, detections, strict=True)
        }
    return [found[place] for place in range(len(images))]


def _group_by_size(images: Sequence[Tensor]) -> list[list[int]]:
    """Return the places of the images of each size."""
    groups: dict[torch.Size, list[int]] = {}
    for place, image in enumerate(images):
        groups.setdefault(image.shape, []).append(place)
    return list(groups.values())


def _to_tile(found: Detections, target: Target) -> Detections:
    """Return detections on the CPU in float64 and in px of the tile, best score first."""
    order = found["scores"].argsort(descending=True, stable=True).cpu()
    rboxes = found["rboxes"].double().cpu()[order]
    if "scale" in target:
        scale_x, scale_y = target["scale"].tolist()
        rboxes = scale_rboxes(rboxes, 1 / scale_x, 1 / scale_y)
    return Detections(
        rboxes=rboxes,
        scores=found["scores"].double().cpu()[order],
        labels=found["labels"].cpu()[order],
    )


def _tabulate(found: dict[int, Detections], dataset: TileSource) -> pd.DataFrame:
    """Return detections as a table, in the order of the samples."""
    ordered = [(dataset.tile_ids[index], found[index]) for index in sorted(found)]
    tiles = [name for name, each in ordered for _ in range(len(each["scores"]))]
    if not tiles:
        return make_table([], DETECTIONS)
    rboxes = torch.cat([each["rboxes"] for _, each in ordered])
    labels = torch.cat([each["labels"] for _, each in ordered])
    names = list(dataset.class_names)
    columns: dict[str, Any] = {
        "image_id": tiles,
        "class_name": [names[label - 1] for label in labels.tolist()],
        "score": torch.cat([each["scores"] for _, each in ordered]).numpy(),
    }
    columns |= {name: rboxes[:, place].numpy() for place, name in enumerate(RBOX)}
    return make_table(columns, DETECTIONS)
