"""Tables of a small run, as the report reads them."""

import numpy as np
import pandas as pd
import pytest
import torch

from obbflow.config import EvaluationSection
from obbflow.evaluation import score_final
from obbflow.reporting.report import ReportData
from obbflow.tables import (
    CLASS_WEIGHTS,
    DATA_ISSUES,
    DETECTIONS,
    GROUND_TRUTH,
    TILE_ANNOTATIONS,
    TILE_INDEX,
    make_table,
)


@pytest.fixture(scope="session")
def make_metrics():
    """Return a function: number of epochs -> ``training_metrics``."""

    def make(n_epochs, *, scored=True):
        epoch = np.arange(1, n_epochs + 1)
        score = 1 - 1 / (epoch + 1) if scored else np.full(n_epochs, np.nan)
        return pd.DataFrame(
            {
                "epoch": epoch,
                "train/total_loss": 2.0 / epoch,
                "train/loss_objectness": 0.5 / epoch,
                "train/loss_box_reg": 0.3 / epoch,
                "val/AP50": score,
                "val/AP50_95": score / 2,
                "lr": 0.01 / epoch,
                "lr_min": 0.005 / epoch,
                "lr_max": 0.02 / epoch,
            }
        )

    return make


@pytest.fixture(scope="session")
def make_data(make_metrics):
    """Return a function: class names, epochs and whether there are validation tiles -> a run."""

    def make(class_names=("plane", "ship"), n_epochs=3, *, has_val=True, issues=()):
        tile_ids = ["t1", "t2", "t3"] if has_val else []
        truth, found = [], []
        for number, name in enumerate(class_names):
            box = (20.0 + 3 * number % 40, 30.0, 16.0, 8.0, 0.3)
            truth += [("t1", name, *box, False), ("t2", name, *box, False)]
            found += [("t1", name, 0.9, *box), ("t2", name, 0.8, 60.0, 55.0, 16.0, 8.0, 0.0)]
        ground_truth = make_table(truth if has_val else [], GROUND_TRUTH)
        detections = make_table(found if has_val else [], DETECTIONS)
        evaluation = EvaluationSection()
        scores = score_final(
            detections, ground_truth, class_names, n_images=len(tile_ids), evaluation=evaluation
        )
        origin = {"checkpoint": "runs/r/best.pt", "checkpoint_sha256": "00ff", "data_hash": "ab"}
        size = 80
        tiles = [(name, "s", "val", 0, 0, size, size, f"{name}.png", 1, 1.0) for name in tile_ids]
        tiles.append(("t0", "r", "train", 0, 0, size, size, "t0.png", 2, 1.0))
        annotations = [
            ("t0", name, 20.0, 20.0, 16.0, 8.0, 0.1, False, False, False, 1.0, number)
            for number, name in enumerate(class_names)
        ]
        weights = [
            (name, number, 10 * number, 0.1, 1.0, 1.0, 1.0, np.nan, 1.5)
            for number, name in enumerate(class_names, start=1)
        ]
        return ReportData(
            run_record={
                "run_id": "2026-01-02T03.04.05.678Z",
                "started": "2026-01-02T03:04:06.000+00:00",
                "seconds": 75.0,
                "epochs_completed": n_epochs,
                "configuration": {
                    "experiment": {"model_type": "oriented_rcnn", "seed": 7},
                    "dataset": {"format": "dota", "data_root": "/data/harbour & <bay>"},
                },
                "devices": {"cpus": 2, "cuda": [], "used": "cpu", "precision": "32-true"},
                "git": {"commit": "0123456789abcdef", "dirty": False},
                "libraries": {"torch": "2.9"},
            },
            training_metrics=make_metrics(n_epochs, scored=has_val),
            final_metrics={**scores.metrics, "level": "tile", "epoch": n_epochs, **origin},
            class_metrics=scores.class_metrics,
            class_weights=make_table(weights, CLASS_WEIGHTS),
            precision_recall=scores.precision_recall,
            detections=detections,
            tile_index=make_table(tiles, TILE_INDEX),
            tile_annotations=make_table(annotations, TILE_ANNOTATIONS),
            data_issues=make_table(list(issues), DATA_ISSUES),
            class_names=list(class_names),
            tile_ids=tile_ids,
            ground_truth=ground_truth,
            tile_image=lambda _: torch.full((3, size, size), 90, dtype=torch.uint8),
            evaluation=evaluation,
        )

    return make
