"""Kedro hooks: checked parameters, early checks, the run id, and reading what this run wrote."""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import AbstractVersionedDataset, DataCatalog, Version
from kedro.pipeline import Pipeline

from obbflow.config import (
    CheckpointSection,
    ModelSection,
    PathsSection,
    TrainingSection,
    fill_sections,
)
from obbflow.errors import CheckpointError, ConfigError, did_you_mean

DATA_ROOT_VARIABLE = "OBBFLOW_DATA_ROOT"

_SHOWN = 5  # runs that a message names

# Parameters that are paths of files or folders to read, or lists of such: (section, key).
_INPUT_PATHS = (
    ("dataset", "data_root"),
    ("dataset", "train_tiles_dir"),
    ("dataset", "val_tiles_dir"),
    ("dataset", "train_tiles_dirs"),
    ("dataset", "val_tiles_dirs"),
    ("checkpoint", "load_from_checkpoint"),
    ("model", "backbone_weights"),
    ("production", "images"),
)


class ParametersHook:
    """The one door that parameters pass: checked, complete, with absolute paths."""

    @hook_impl
    def after_context_created(self, context: KedroContext) -> None:
        """Replace the raw parameters by complete ones.

        Raises:
            ConfigError: Naming every unknown section or key and every bad value at once.
        """
        loader = context.config_loader
        given = dict(loader.runtime_params or {})
        raw, given = _apply_data_root_variable(dict(loader["parameters"]), given)
        filled = fill_sections(raw)
        for section, key in _INPUT_PATHS:
            value = filled[section][key]
            if value is not None:
                typed = key in (given.get(section) or {})
                start = Path.cwd() if typed else context.project_path
                filled[section][key] = _absolute(value, start)
        filled["paths"]["data_dir"] = str(_data_dir(filled, loader["globals"], context))
        loader["parameters"] = filled


def _absolute(value: str | list[str], start: Path) -> str | list[str]:
    """Return a path, or each path of a list, taken from ``start`` where it is relative."""
    if isinstance(value, str):
        return str(start / Path(value).expanduser())
    return [str(start / Path(path).expanduser()) for path in value]


def _apply_data_root_variable(
    raw: dict[str, Any], given: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return parameters and those given on the command line, with OBBFLOW_DATA_ROOT in both.

    The variable replaces what configuration files say; ``--params dataset.data_root`` wins over it.
    """
    dataset, given_dataset = raw.get("dataset"), given.get("dataset") or {}
    root = os.environ.get(DATA_ROOT_VARIABLE)
    if not root or "data_root" in given_dataset or not isinstance(dataset, Mapping | None):
        return raw, given
    return (
        {**raw, "dataset": {**(dataset or {}), "data_root": root}},
        {**given, "dataset": {**given_dataset, "data_root": root}},
    )


def _data_dir(
    filled: Mapping[str, Mapping[str, Any]], shared: Mapping[str, Any], context: KedroContext
) -> Path:
    """Return the root of all outputs, which the catalog and ``paths`` must agree on."""
    data_dir, of_catalog = filled["paths"]["data_dir"], shared.get("data_dir")
    if of_catalog is not None and Path(data_dir) != Path(of_catalog):
        raise ConfigError(
            f"paths.data_dir: the catalog writes to {str(of_catalog)!r}, got {data_dir!r}. Both "
            "follow data_dir of conf/<environment>/globals.yml: set it there, or set the "
            "environment variable OBBFLOW_DATA_DIR, and leave paths.data_dir alone."
        )
    return context.project_path / Path(data_dir)


class EarlyChecksHook:
    """What training would find missing, found before the nodes ahead of it replace anything."""

    @hook_impl
    def before_pipeline_run(self, pipeline: Pipeline, catalog: DataCatalog) -> None:
        """Look for the files that a training starts from, and for the device.

        Raises:
            CheckpointError: If weights are not there.
            ConfigError: If the experiment or the device is not there.
        """
        if "train_detector" not in {node.name for node in pipeline.nodes}:
            return

        def section(name: str) -> Any:  # noqa: ANN401 - a section, or its keys
            dataset = catalog.get(f"params:{name}")
            return dataset.load() if dataset is not None else {}

        checkpoint = CheckpointSection.model_validate(section("checkpoint"))
        if not checkpoint.discover_previous_run:  # the run that is found needs no other file
            runs = PathsSection.model_validate(section("paths")).runs
            _require_start(checkpoint, ModelSection.model_validate(section("model")), runs)
        training = TrainingSection.model_validate(section("training"))
        if training.accelerator == "cuda":
            from obbflow.training.device import detect_hardware, resolve_runtime

            resolve_runtime(training, detect_hardware())


class TileLockHook:
    """Keeps the tiles of one data folder for one run: another would cut them anew in between.

    The system frees the lock however the process ends.
    """

    _lock: IO[str] | None = None

    @hook_impl
    def before_pipeline_run(self, pipeline: Pipeline, catalog: DataCatalog) -> None:
        """Take the lock if this run cuts tiles.

        Raises:
            ConfigError: If another run that cuts tiles is at work in the same folder, or the folder
                is a file.
        """
        self._free()  # a notebook's former run, which another hook stopped before its start
        if "tile_images" not in {node.name for node in pipeline.nodes}:
            return
        data_dir = PathsSection.model_validate(catalog["params:paths"].load()).data_dir
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise ConfigError(
                f"{data_dir}: a file, where the folder for everything that is written should be. "
                "Move it, or name a folder in the environment variable OBBFLOW_DATA_DIR."
            ) from error
        lock = (data_dir / ".lock").open("w", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise ConfigError(
                f"{data_dir}: another run is at work in this folder, and this one could change its "
                "tiles. Wait for it, or let this run write elsewhere with the environment variable "
                "OBBFLOW_DATA_DIR."
            ) from error
        self._lock = lock

    @hook_impl
    def after_pipeline_run(self) -> None:
        """Free the lock."""
        self._free()

    @hook_impl
    def on_pipeline_error(self) -> None:
        """Free the lock."""
        self._free()

    def _free(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _require_start(checkpoint: CheckpointSection, model: ModelSection, runs: Path) -> None:
    """Raise unless what a training starts from is there."""
    if checkpoint.load_from_checkpoint is not None:
        if not checkpoint.load_from_checkpoint.is_file():
            raise CheckpointError(
                f"checkpoint.load_from_checkpoint: there is no file "
                f"{checkpoint.load_from_checkpoint}. Correct the path."
            )
    elif checkpoint.load_from_experiment is not None:
        name = checkpoint.load_from_experiment
        known = (
            sorted((path.name for path in runs.iterdir()), reverse=True) if runs.is_dir() else []
        )
        if name not in known:
            raise ConfigError(
                f"checkpoint.load_from_experiment: there is no run {name!r} in {runs}"
                f"{did_you_mean(name, known)}. The newest are: "
                f"{', '.join(known[:_SHOWN]) or 'none'}."
            )
    elif model.pretrained_backbone:
        _require_backbone(model)


def _require_backbone(model: ModelSection) -> None:
    """Raise unless the weights of the backbone are on this machine; torch is not imported."""
    if model.backbone_weights is not None:
        if not Path(model.backbone_weights).is_file():
            raise CheckpointError(
                f"model.backbone_weights: there is no file {model.backbone_weights}. Correct the "
                "path, or set model.pretrained_backbone=false to start from random weights."
            )
        return
    # Where torch.hub keeps what it downloads.
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = Path(os.environ.get("TORCH_HOME") or Path(cache, "torch")).expanduser()
    folder = home / "hub" / "checkpoints"
    if any(folder.glob(f"{model.backbone}*-*.pth")):
        return
    from torchvision.models import get_model_weights  # takes seconds; only for the message

    url = get_model_weights(model.backbone).DEFAULT.url
    raise CheckpointError(
        f"{folder}: the pretrained weights of {model.backbone} are not on this machine. Download "
        f"{url} to that folder, or name another file in model.backbone_weights, or set "
        "model.pretrained_backbone=false to start from random weights."
    )


class RunIdHook:
    """Gives nodes the run id, and lets a run read the versions that it wrote itself."""

    _catalog: DataCatalog

    @hook_impl
    def after_catalog_created(self, catalog: DataCatalog, save_version: str | None) -> None:
        """Add the entry ``run_id``: the version of everything that this run saves."""
        self._catalog = catalog
        catalog["run_id"] = save_version or "interactive"

    @hook_impl
    def after_dataset_saved(self, dataset_name: str) -> None:
        """Pin a saved entry to the version just written.

        Kedro decides what is newest at each reading; with two runs at a time, one would
        otherwise score the checkpoint of the other.
        """
        dataset = self._catalog.get(dataset_name)
        if not isinstance(dataset, AbstractVersionedDataset):
            return
        version = dataset._version
        if version is not None and version.load is None:
            dataset._version = Version(version.save, version.save)
