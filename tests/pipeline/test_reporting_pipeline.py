import numpy as np
import pandas as pd
import pytest
from kedro.io import DataCatalog
from kedro.runner import SequentialRunner
from matplotlib.figure import Figure
from PIL import Image

from obbflow.config import (
    DatasetSection,
    EvaluationSection,
    ExperimentSection,
    PreprocessingSection,
)
from obbflow.errors import DataError
from obbflow.evaluation import score_final
from obbflow.pipelines.reporting.pipeline import create_pipeline
from obbflow.tables import (
    CLASS_WEIGHTS,
    DATA_ISSUES,
    DETECTIONS,
    GROUND_TRUTH,
    TILE_ANNOTATIONS,
    TILE_INDEX,
    make_table,
)
from obbflow.training.record import data_hash

SHIP = (20.0, 24.0, 16.0, 8.0, 0.3)


@pytest.fixture
def inputs(tmp_path):
    """The smallest run: one training tile, one validation tile, one epoch, one class."""
    tiles, objects = [], []
    for number, split in enumerate(("train", "val")):
        path = tmp_path / f"t{number}.png"
        Image.fromarray(np.full((64, 64, 3), 90, np.uint8)).save(path)
        tiles.append((f"t{number}", f"s{number}", split, 0, 0, 64, 64, str(path), 1, 1.0))
        objects.append((f"t{number}", "ship", *SHIP, False, False, False, 1.0, number))
    detections = make_table([("t1", "ship", 0.9, *SHIP)], DETECTIONS)
    evaluation = EvaluationSection()
    scores = score_final(
        detections,
        make_table([("t1", "ship", *SHIP, False)], GROUND_TRUTH),
        ["ship"],
        n_images=1,
        evaluation=evaluation,
    )
    tile_index = make_table(tiles, TILE_INDEX)
    tile_annotations = make_table(objects, TILE_ANNOTATIONS)
    origin = {
        "epoch": 1,
        "checkpoint": "best.pt",
        "checkpoint_sha256": "00",
        "data_hash": data_hash(tile_index, tile_annotations, {"ship": 1}),
    }
    return {
        "run_record": {"run_id": "run 1", "epochs_completed": 1},
        "training_metrics": pd.DataFrame({"epoch": [1], "train/total_loss": [2.5], "lr": [0.01]}),
        "final_metrics": {**scores.metrics, **origin},
        "class_metrics": scores.class_metrics,
        "class_weights": make_table([("ship", 1, 1, 1, 1, 1, 1, np.nan, 1)], CLASS_WEIGHTS),
        "precision_recall": scores.precision_recall,
        "detections": detections,
        "tile_index": tile_index,
        "tile_annotations": tile_annotations,
        "class_map": {"ship": 1},
        "data_issues": make_table([], DATA_ISSUES),
        "params:experiment": ExperimentSection(),
        "params:dataset": DatasetSection(format="synthetic"),
        "params:preprocessing": PreprocessingSection(),
        "params:evaluation": evaluation,
    }


def run(inputs, pipeline):
    catalog = DataCatalog()
    for name, value in inputs.items():
        catalog[name] = value
    outputs = SequentialRunner().run(pipeline, catalog)
    return {name: dataset.load() for name, dataset in outputs.items()}


def test_one_epoch_and_one_image_give_figures_and_a_report(inputs):
    outputs = run(inputs, create_pipeline())
    report = outputs.pop("report")
    assert set(outputs) == {
        "training_curves",
        "lr_curve",
        "class_ap",
        "precision_recall_curves",
        "class_balance",
        "object_sizes",
    }
    assert all(isinstance(figure, Figure) for figure in outputs.values())
    assert "run 1" in report
    assert "1.000" in report
    assert "1 of 1 objects found, 0 missed, 0 false positives" in report


def test_tables_read_back_from_csv_give_the_same_report(inputs, tmp_path):
    tables = {}
    for name in ("training_metrics", "class_metrics", "class_weights", "data_issues"):
        path = tmp_path / f"{name}.csv"
        inputs[name].to_csv(path, index=False)
        tables[name] = pd.read_csv(path, keep_default_na=False, na_values=[""])
    pipeline = create_pipeline().only_nodes("render_report")
    assert run({**inputs, **tables}, pipeline) == run(inputs, pipeline)


@pytest.mark.parametrize("node", ["draw_figures", "render_report"])
@pytest.mark.parametrize("changed", ["tile_index", "tile_annotations", "class_map"])
def test_scores_of_other_data_are_not_reported(inputs, node, changed):
    other = {
        "tile_index": inputs["tile_index"].assign(x=7),
        "tile_annotations": inputs["tile_annotations"].assign(angle=0.1),
        "class_map": {"ship": 1, "plane": 2},
    }
    with pytest.raises(DataError, match="--pipelines evaluation,reporting"):
        run({**inputs, changed: other[changed]}, create_pipeline().only_nodes(node))
