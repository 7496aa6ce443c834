"""Kedro hooks: checked parameters, the run id, and reading what this run wrote."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kedro.framework.context import KedroContext
from kedro.framework.hooks import hook_impl
from kedro.io import AbstractVersionedDataset, DataCatalog, Version

from obbflow.config import fill_sections
from obbflow.errors import ConfigError

DATA_ROOT_VARIABLE = "OBBFLOW_DATA_ROOT"

# Parameters that are paths of files or folders to read: (section, key).
_INPUT_PATHS = (
    ("dataset", "data_root"),
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
                filled[section][key] = str(start / Path(value).expanduser())
        filled["paths"]["data_dir"] = str(_data_dir(filled, loader["globals"], context))
        loader["parameters"] = filled


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
