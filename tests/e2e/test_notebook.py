"""The notebook, executed on the outputs of the smoke run."""

import nbformat
import numpy as np
import pytest
from kedro.io import DataCatalog
from nbclient import NotebookClient

from obbflow.evaluation import evaluate_detections
from obbflow.tables import DETECTIONS, TILE_ANNOTATIONS, TILE_INDEX, make_table


@pytest.fixture(scope="module")
def executed(project, smoke_run, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in project.environment(
            OBBFLOW_DATA_DIR=smoke_run.data_dir,
            KEDRO_ENV="smoke",
            IPYTHONDIR=tmp_path_factory.mktemp("ipython"),
            MPLBACKEND="module://matplotlib_inline.backend_inline",
        ).items():
            patch.setenv(name, value)
        path = project.root / "notebooks" / "explore_run.ipynb"
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(
            notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}
        ).execute()
    return notebook


def outputs(notebook):
    return [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    ]


def test_every_cell_runs_without_a_warning(executed):
    streams = [output for output in outputs(executed) if output.output_type == "stream"]

    assert [output.text for output in streams if output.name == "stderr"] == []


def test_tables_and_drawn_tiles_are_shown(executed):
    kinds = [kind for output in outputs(executed) for kind in output.get("data", {})]

    assert kinds.count("text/html") >= 2
    assert kinds.count("image/png") >= 2


def test_the_notebook_is_kept_without_outputs(project_root):
    notebook = nbformat.read(project_root / "notebooks" / "explore_run.ipynb", as_version=4)

    assert outputs(notebook) == []
    assert {cell.execution_count for cell in notebook.cells if cell.cell_type == "code"} == {None}


def test_its_truth_is_that_of_the_evaluation(project_root):
    notebook = nbformat.read(project_root / "notebooks" / "explore_run.ipynb", as_version=4)
    (cell,) = (cell.source for cell in notebook.cells if "truth = truth.assign" in cell.source)
    box = (20.0, 24.0, 16.0, 8.0, 0.3)
    # class, difficult, ignore: a difficult object that was kept counts; yachts are not trained
    objects = [("ship", False, False), ("ship", True, False), ("ship", True, True),
               ("yacht", False, False)]  # fmt: skip
    rows = [
        ("t1", name, *box[:4], number / 2, difficult, ignore, False, 1.0, number)
        for number, (name, difficult, ignore) in enumerate(objects)
    ]
    tiles = [
        (f"t{n}", "s", split, 0, 0, 64, 64, "", 1, 1.0) for n, split in enumerate(("train", "val"))
    ]
    catalog = DataCatalog()
    catalog["detections"] = make_table([("t1", "ship", 0.9, *box)], DETECTIONS)
    catalog["tile_index"] = make_table(tiles, TILE_INDEX)
    catalog["tile_annotations"] = make_table(rows, TILE_ANNOTATIONS)
    catalog["class_map"] = {"ship": 1}
    names = {"catalog": catalog}
    exec(cell, names)

    result = evaluate_detections(names["detections"], names["truth"], ["ship"], (0.5,))
    assert result.counts.loc["ship", ["n_gt", "n_difficult"]].tolist() == [2, 1]
    assert np.isfinite(result.mean_ap)
