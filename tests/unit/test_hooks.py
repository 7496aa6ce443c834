from pathlib import Path
from types import SimpleNamespace

import pytest
from kedro.config import OmegaConfigLoader
from kedro.io import DataCatalog, MemoryDataset, Version

from obbflow.config import SECTIONS
from obbflow.datasets import HtmlDataset
from obbflow.errors import ConfigError
from obbflow.hooks import ParametersHook, RunIdHook
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
    ("section", "key"), [("checkpoint", "load_from_checkpoint"), ("model", "backbone_weights")]
)
def test_other_input_files_are_made_absolute(parameters, monkeypatch, tmp_path, section, key):
    monkeypatch.setenv("HOME", "/home/me")

    assert parameters(**{section: {key: "w.pt"}})[section][key] == str(tmp_path / "w.pt")
    assert parameters(**{section: {key: "~/w.pt"}})[section][key] == "/home/me/w.pt"


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
