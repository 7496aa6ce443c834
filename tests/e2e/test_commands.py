"""Commands around a run: quick, quiet, offline."""

import importlib.metadata
import json

import pytest

HEAVY = ("torch", "torchvision", "matplotlib", "tensorboard", "IPython")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["registry", "list"], ["run", "--help"]], ids=" ".join
)
def test_a_command_that_only_tells_is_quick_and_imports_nothing_heavy(project, arguments):
    finished = project.python("-X", "importtime", "-m", "kedro", *arguments)

    assert finished.status == 0
    imported = {
        line.rpartition("|")[2].strip()
        for line in finished.output.splitlines()
        if line.startswith("import time:")
    }
    assert "kedro" in imported
    assert imported.isdisjoint(HEAVY)
    assert finished.cpu_seconds < 5


def test_the_registry_lists_the_pipelines_and_nothing_else(project):
    finished = project.kedro("registry", "list")

    assert finished.status == 0
    lines = finished.output.split("\n")
    assert [line for line in lines if line and not line.startswith("- ")] == []
    assert {"data", "training", "evaluation", "reporting", "train", "__default__"} <= {
        line.removeprefix("- ") for line in lines
    }


@pytest.mark.parametrize("tool", ["kedro", "obbflow"])
@pytest.mark.parametrize("command", ["list", "describe-datasets"])
def test_the_catalog_is_listed_without_a_warning(project, tool, command):
    finished = getattr(project, tool)("catalog", command, "--env", "dota")

    assert finished.status == 0
    assert "WARNING" not in finished.output
    for entry in ("tile_index", "best_checkpoint", "report"):
        assert f"- {entry}" in finished.output


def test_our_own_command_says_its_version(project):
    finished = project.obbflow("--version")

    assert finished.output.strip() == f"obbflow, version {importlib.metadata.version('obbflow')}"


@pytest.mark.parametrize("tool", ["kedro", "obbflow"])
@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        (["--config", ".kedro.yml", "--to-nodes", "read_annotations"], ["read_annotations"]),
        (["--pipeline", "data", "--nodes", "read_annotations"], ["read_annotations"]),
        (
            ["--config", ".kedro.yml", "--pipeline", "data", "--to-nodes", "check_annotations"],
            ["read_annotations", "check_annotations"],
        ),
    ],
    ids=["run configuration", "singular option", "both"],
)
def test_a_run_is_chosen_by_file_or_option(project, tmp_path, tool, options, nodes):
    run = getattr(project, tool)

    finished = run("run", "--env", "smoke", *options, OBBFLOW_DATA_DIR=tmp_path)

    assert finished.status == 0, finished.output
    assert "deprecated" not in finished.output
    assert [node for node in nodes if f"Completed node: {node}" not in finished.output] == []
    assert f"Completed {len(nodes)} out of {len(nodes)} tasks" in finished.output
    assert (tmp_path / "02_intermediate" / "images.parquet").is_file()


def test_the_lineage_page_is_built_offline(project, smoke_run):
    finished = project.kedro(
        "viz", "build", "--include-previews", KEDRO_ENV="smoke", OBBFLOW_DATA_DIR=smoke_run.data_dir
    )

    assert finished.status == 0, finished.output
    assert "WARNING" not in finished.output
    page = project.root / "build"
    assert (page / "index.html").is_file()
    graph = json.loads((page / "api" / "main").read_text(encoding="utf-8"))
    shown = {node["name"] for node in graph["nodes"]}
    assert {"read_annotations", "train_detector", "tile_index", "report"} <= shown
    assert graph["layers"] == sorted(graph["layers"])  # a contradiction would leave none
    assert {"02_intermediate", "03_primary", "06_models", "08_reporting"} <= set(graph["layers"])
    assert not project.network_log.exists()
