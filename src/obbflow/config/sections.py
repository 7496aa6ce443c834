"""All configuration sections, and the one door that raw parameters pass through."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from obbflow.config.checkpoint import CheckpointSection
from obbflow.config.contradictions import find_contradictions
from obbflow.config.data_loader import DataLoaderSection
from obbflow.config.dataset import DatasetSection, DemoSection
from obbflow.config.evaluation import EvaluationSection
from obbflow.config.experiment import ExperimentSection
from obbflow.config.loss import LossSection
from obbflow.config.model import ModelSection
from obbflow.config.paths import PathsSection
from obbflow.config.preprocessing import PreprocessingSection
from obbflow.config.production import ProductionSection
from obbflow.config.section import Section
from obbflow.config.tensorboard import TensorboardSection
from obbflow.config.tiling import TilingSection
from obbflow.config.training import TrainingSection
from obbflow.errors import ConfigError, did_you_mean

SECTIONS: dict[str, type[Section]] = {
    "paths": PathsSection,
    "experiment": ExperimentSection,
    "dataset": DatasetSection,
    "demo": DemoSection,
    "tiling": TilingSection,
    "preprocessing": PreprocessingSection,
    "data_loader": DataLoaderSection,
    "model": ModelSection,
    "loss": LossSection,
    "training": TrainingSection,
    "evaluation": EvaluationSection,
    "checkpoint": CheckpointSection,
    "tensorboard": TensorboardSection,
    "production": ProductionSection,
}


def fill_sections(parameters: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return all sections as plain dictionaries, checked, with defaults filled in.

    Args:
        parameters: What the configuration files and ``--params`` say: section name -> mapping of
            key -> value. A section that is absent or null means "all defaults".

    Returns:
        Section name -> every key of that section, in YAML-friendly types.

    Raises:
        ConfigError: Listing every unknown section, unknown key and bad value at once, each with
            the closest valid name where there is one.
    """
    problems = [
        f"{name}: unknown section{did_you_mean(name, SECTIONS)}; the sections are "
        f"{', '.join(SECTIONS)}"
        for name in parameters
        if name not in SECTIONS
    ]
    filled = {}
    for name, section in SECTIONS.items():
        values = parameters.get(name)
        if values is not None and not isinstance(values, Mapping):
            problems.append(f"{name}: a section holds keys and values, got {values!r}")
            continue
        try:
            filled[name] = section.model_validate(values or {}).model_dump(mode="json")
        except ValidationError as error:
            problems.extend(_describe(name, section, error))
    if not problems:
        problems = find_contradictions(filled, _defaults())
    if problems:
        raise ConfigError(
            "The configuration does not hold:\n  "
            + "\n  ".join(problems)
            + "\nCorrect the keys in conf/<environment>/parameters*.yml or in --params."
        )
    return filled


def _defaults() -> dict[str, dict[str, Any]]:
    """Return the default values of all sections, in the types of ``fill_sections``."""
    return {
        name: section.model_construct().model_dump(mode="json")
        for name, section in SECTIONS.items()
    }


def _describe(name: str, section: type[Section], error: ValidationError) -> list[str]:
    """Return one line a problem of one section."""
    lines = []
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"])
        where = f"{name}.{key}" if key else name
        if item["type"] == "extra_forbidden":
            lines.append(f"{where}: unknown key{did_you_mean(key, section.model_fields)}")
        elif item["type"] == "value_error":
            lines.append(f"{where}.{item['ctx']['error']}")
        else:
            lines.append(
                f"{where}: {item['msg'][0].lower()}{item['msg'][1:]}, got {item['input']!r}"
            )
    return lines
