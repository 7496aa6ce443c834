import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from kedro.config import OmegaConfigLoader
from kedro.io import DataCatalog, MemoryDataset, Version

from obbflow.config import SECTIONS, fill_sections
from obbflow.datasets import HtmlDataset
from obbflow.errors import CheckpointError, ConfigError, ObbflowError
from obbflow.hooks import EarlyChecksHook, ParametersHook, RunIdHook, TileLockHook
from obbflow.pipeline_registry import register_pipelines
from obbflow.settings import CONFIG_LOADER_ARGS


@pytest.fixture
def parameters(project_root, monkeypatch, tmp_path):
    """Parameters as the hook leaves them, from the project's own configuration files."""
    monkeypatch.chdir(tmp_path)

    def load(env="base", **runtime_params):
        loader = OmegaConfigLoader(
            conf_source=str(project_root / "conf"),
            env=env,
            runtime_params=runtime_params,
            **CONFIG_LOADER_ARGS,
        )
        context = SimpleNamespace(config_loader=loader, project_path=Path("/project"))
        ParametersHook().after_context_created(context)
        return loader["parameters"]

    return load


def test_every_section_is_there_and_complete(parameters):
    filled = parameters()

    for name, section in SECTIONS.items():
        assert list(filled[name]) == list(section.model_fields), name


def test_an_environment_changes_only_the_keys_it_names(parameters):
    base, smoke = parameters("base")["model"], parameters("smoke")["model"]

    assert smoke["fpn_channels"] < base["fpn_channels"]
    assert smoke["backbone"] == base["backbone"]
    assert smoke["anchor_scales"] == base["anchor_scales"]


def test_runtime_parameters_win(parameters):
    filled = parameters(training={"num_epochs": 7})

    assert filled["training"]["num_epochs"] == 7


def test_an_unknown_runtime_parameter_is_refused(parameters):
    with pytest.raises(ConfigError, match="did you mean 'num_epochs'"):
        parameters(training={"num_epoch": 7})


def test_the_data_folder_lies_in_the_project(parameters):
    assert parameters("base")["paths"]["data_dir"] == "/project/data"
    assert parameters("smoke")["paths"]["data_dir"] == "/project/data/smoke"


@pytest.mark.parametrize("env", ["base", "smoke", "dota", "airbus", "local"])
def test_the_data_folder_is_replaced_by_the_environment_variable(parameters, monkeypatch, env):
    monkeypatch.setenv("OBBFLOW_DATA_DIR", "/disk/obbflow")

    assert parameters(env)["paths"]["data_dir"] == "/disk/obbflow"


def test_a_data_folder_that_the_catalog_does_not_share_is_refused(parameters):
    with pytest.raises(ConfigError, match=r"paths\.data_dir: the catalog writes to 'data'"):
        parameters(paths={"data_dir": "/elsewhere"})


@pytest.mark.parametrize("env", ["base", "dota", "local"])
def test_the_data_root_is_replaced_by_the_environment_variable(
    parameters, monkeypatch, tmp_path, env
):
    monkeypatch.setenv("OBBFLOW_DATA_ROOT", "photos")

    assert parameters(env)["dataset"]["data_root"] == str(tmp_path / "photos")


def test_the_command_line_wins_over_the_environment_variable(parameters, monkeypatch, tmp_path):
    monkeypatch.setenv("OBBFLOW_DATA_ROOT", "/photos")

    filled = parameters(dataset={"data_root": "mine"})

    assert filled["dataset"]["data_root"] == str(tmp_path / "mine")


def test_a_data_root_from_a_file_is_relative_to_the_project(parameters):
    assert parameters("dota")["dataset"]["data_root"] == "/project/data/dota/01_raw"


def test_the_demo_has_no_data_root(parameters):
    assert parameters("base")["dataset"]["data_root"] is None


@pytest.mark.parametrize(
    ("section", "key", "others"),
    [
        ("checkpoint", "load_from_checkpoint", {}),
        ("model", "backbone_weights", {"pretrained_backbone": True}),
    ],
)
def test_other_input_files_are_made_absolute(
    parameters, monkeypatch, tmp_path, section, key, others
):
    monkeypatch.setenv("HOME", "/home/me")

    for given, path in (("w.pt", str(tmp_path / "w.pt")), ("~/w.pt", "/home/me/w.pt")):
        assert parameters(**{section: {key: given, **others}})[section][key] == path


def test_each_folder_of_a_list_is_made_absolute(parameters, tmp_path):
    filled = parameters(dataset={"train_tiles_dirs": ["a", "/b"], "val_tiles_dir": "c"})
    assert filled["dataset"]["train_tiles_dirs"] == [str(tmp_path / "a"), "/b"]
    assert filled["dataset"]["val_tiles_dir"] == str(tmp_path / "c")


def test_the_run_id_is_a_catalog_entry():
    catalog = DataCatalog()

    RunIdHook().after_catalog_created(catalog, save_version="2026-01-01T00.00.00.000Z")

    assert catalog.load("run_id") == "2026-01-01T00.00.00.000Z"


def test_without_a_run_the_run_id_says_interactive():
    catalog = DataCatalog()

    RunIdHook().after_catalog_created(catalog, save_version=None)

    assert catalog.load("run_id") == "interactive"


def test_a_run_reads_what_it_wrote_although_another_run_has_written_since(tmp_path):
    def report(save):
        return HtmlDataset(filepath=str(tmp_path / "report.html"), version=Version(None, save))

    catalog = DataCatalog({"report": report("2026-01-01T00.00.00.000Z"), "x": MemoryDataset()})
    hook = RunIdHook()
    hook.after_catalog_created(catalog, save_version="2026-01-01T00.00.00.000Z")

    catalog.save("report", "mine")
    hook.after_dataset_saved("report")
    report("2026-01-02T00.00.00.000Z").save("of the other run")

    assert catalog.load("report") == "mine"


def test_entries_without_versions_are_left_alone():
    dataset = MemoryDataset()
    hook = RunIdHook()
    hook.after_catalog_created(DataCatalog({"x": dataset}), save_version="now")

    hook.after_dataset_saved("x")

    dataset.save(3)
    assert dataset.load() == 3


@pytest.fixture
def check_early(tmp_path, monkeypatch):
    """Do what is done before the first node of a pipeline."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))

    def check(pipeline="train", **sections):
        sections = {"dataset": {"format": "synthetic"}, "model": {"pretrained_backbone": False},
                    "paths": {"data_dir": str(tmp_path / "data")}, **sections}  # fmt: skip
        catalog = DataCatalog()
        for name, values in fill_sections(sections).items():
            catalog[f"params:{name}"] = SECTIONS[name].model_validate(values)
        EarlyChecksHook().before_pipeline_run(register_pipelines()[pipeline], catalog)

    return check


MISSING = [
    (
        {"checkpoint": {"load_from_checkpoint": "nowhere.pt"}},
        CheckpointError,
        "checkpoint.load_from_checkpoint: there is no file nowhere.pt",
    ),
    (
        {"checkpoint": {"load_from_experiment": "rum1"}},
        ConfigError,
        "there is no run 'rum1' in .*, did you mean 'run1'.*The newest are: run1",
    ),
    (
        {"model": {"backbone_weights": "nowhere.pth"}},
        CheckpointError,
        "model.backbone_weights: there is no file nowhere.pth",
    ),
    (
        {"model": {"backbone": "resnet50"}},
        CheckpointError,
        "torch/hub/checkpoints: the pretrained weights of resnet50 .*https://.*resnet50-.*.pth",
    ),
]


@pytest.mark.parametrize(
    ("sections", "error", "message"),
    MISSING,
    ids=["checkpoint", "experiment", "weights file", "weights in the cache"],
)
def test_what_training_would_miss_is_named_before_the_first_node(
    check_early, tmp_path, sections, error, message
):
    (tmp_path / "data" / "06_models" / "runs" / "run1").mkdir(parents=True)

    for pipeline in ("train", "training"):
        with pytest.raises(error, match=message):
            check_early(pipeline, **sections)
    for pipeline in ("data", "evaluation", "reporting", "predict"):
        check_early(pipeline, **sections)


@pytest.mark.parametrize(
    ("needed", "section", "key", "value"),
    [
        ("w.pt", "checkpoint", "load_from_checkpoint", "{folder}/w.pt"),
        ("data/06_models/runs/run1/best.pt", "checkpoint", "load_from_experiment", "run1"),
        ("w.pth", "model", "backbone_weights", "{folder}/w.pth"),
        ("torch/hub/checkpoints/resnet50-0123abcd.pth", "model", "backbone", "resnet50"),
        # torchvision names three files in another way
        ("torch/hub/checkpoints/efficientnet_b0_x-01.pth", "model", "backbone", "efficientnet_b0"),
    ],
    ids=["checkpoint", "experiment", "weights file", "weights in the cache", "with an author"],
)
def test_what_was_missing_is_not_named_once_it_is_there(
    check_early, tmp_path, needed, section, key, value
):
    sections = {section: {key: value.format(folder=tmp_path)}}
    with pytest.raises(ObbflowError) as error:
        check_early(**sections)
    assert value.format(folder=tmp_path) in str(error.value)

    (tmp_path / needed).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / needed).touch()
    check_early(**sections)


def test_a_run_that_is_continued_needs_nothing_else(check_early):
    with pytest.raises(CheckpointError, match="resnet50"):
        check_early(model={"backbone": "resnet50"})
    check_early(checkpoint={"discover_previous_run": True}, model={"backbone": "resnet50"})


def test_a_device_that_is_not_there_is_named_before_the_first_node(check_early):
    if torch.cuda.is_available():
        pytest.skip("there is one")

    with pytest.raises(ObbflowError, match=r"training\.accelerator: 'cuda' was asked for"):
        check_early(training={"accelerator": "cuda"})


def test_early_checks_do_not_wait_for_torch():
    code = (
        "import sys\n"
        "from kedro.io import DataCatalog\n"
        "from obbflow.config import SECTIONS, fill_sections\n"
        "from obbflow.hooks import EarlyChecksHook\n"
        "from obbflow.pipeline_registry import register_pipelines\n"
        "given = {'dataset': {'format': 'synthetic'}, 'model': {'pretrained_backbone': False}}\n"
        "filled = fill_sections(given)\n"
        "catalog = DataCatalog()\n"
        "for name in filled: catalog[f'params:{name}'] = filled[name]\n"
        "EarlyChecksHook().before_pipeline_run(register_pipelines()['train'], catalog)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip().endswith("False")


@pytest.fixture
def start_run(tmp_path):
    """Start a run of a pipeline, as Kedro's session does; each has hooks of its own."""

    def start(pipeline):
        hook, catalog = TileLockHook(), DataCatalog()
        catalog["params:paths"] = SECTIONS["paths"](data_dir=tmp_path / "data")
        hook.before_pipeline_run(register_pipelines()[pipeline], catalog)
        return hook

    return start


@pytest.mark.parametrize("end", ["after_pipeline_run", "on_pipeline_error"])
def test_two_runs_never_cut_tiles_in_one_folder_at_a_time(start_run, end):
    first = start_run("train")
    with pytest.raises(ConfigError, match=r"data: another run is at work.*OBBFLOW_DATA_DIR"):
        start_run("data")

    getattr(first, end)()
    getattr(start_run("data"), end)()


def test_a_run_that_cuts_no_tiles_waits_for_nobody(start_run):
    first = start_run("train")

    assert start_run("evaluation")._lock is None
    first.after_pipeline_run()


def test_a_run_that_never_started_does_not_block_the_next_in_its_notebook(start_run, tmp_path):
    stopped = start_run("train")
    catalog = DataCatalog()
    catalog["params:paths"] = SECTIONS["paths"](data_dir=tmp_path / "data")

    stopped.before_pipeline_run(register_pipelines()["train"], catalog)

    assert stopped._lock is not None
    stopped.after_pipeline_run()
