"""The notebook, executed on the outputs of the smoke run."""

import nbformat
import pytest
from nbclient import NotebookClient


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
