"""From a checkpoint file alone to a detector and the settings to look at images with."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from torch import nn

from obbflow.config import (
    MODEL_OVERRIDES,
    DatasetSection,
    EvaluationSection,
    ExperimentSection,
    ModelSection,
    PreprocessingSection,
    ProductionSection,
    Section,
    TilingSection,
)
from obbflow.data.images import STRETCH_PERCENTILES
from obbflow.errors import CheckpointError, ConfigError, did_you_mean
from obbflow.models import build_model, load_checkpoint

logger = logging.getLogger(__name__)

DEFAULT_OVERLAP = 200  # px

AnySection = TypeVar("AnySection", bound=Section)


@dataclass(frozen=True)
class WindowSettings:
    """How an image is looked at, and which detections stay.

    Attributes:
        tile_size: Side of a window, px.
        overlap: Of neighbouring windows, px, below ``tile_size``.
        ignore_margin: Width of the border with a neighbour whose detections it is to give, px.
        score_thresholds: Class name -> lowest score that stays; all classes in id order.
        nms_iou_threshold: For detections of neighbouring windows.
        nms_class_agnostic: Whether boxes of different classes suppress each other.
        bands: Of an image that become red, green and blue; see ``open_image``.
        stretch_percentiles: Of images of more than 8 bits; see there.
    """

    tile_size: int
    overlap: int
    ignore_margin: float
    score_thresholds: dict[str, float]
    nms_iou_threshold: float
    nms_class_agnostic: bool
    bands: tuple[int, ...] | None = None
    stretch_percentiles: tuple[float, float] = STRETCH_PERCENTILES

    @property
    def class_names(self) -> list[str]:
        """Class names of the labels 1..C."""
        return list(self.score_thresholds)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Detector:
    """A model, what its images go through, and the settings to use it with."""

    model: nn.Module
    preprocessing: PreprocessingSection
    settings: WindowSettings


def load_detector(
    path: Path,
    content: Mapping[str, Any],
    production: ProductionSection,
) -> Detector:
    """Return the detector of a checkpoint, with the overrides of ``production``.

    Class map, model and window size are those that the file holds: nothing of the run that wrote
    it is needed.

    Args:
        path: The checkpoint.
        content: What it holds; ``class_map`` and ``config`` (every section) are used.
        production: Overrides; a null key takes the checkpoint's value.

    Returns:
        The detector on the CPU, in evaluation mode.

    Raises:
        CheckpointError: If the file lacks classes or settings, or its weights do not fit them.
        ConfigError: If ``production`` names an unknown class, or its overlap or margin is too
            large for the windows.
    """
    class_map, config = content.get("class_map"), content.get("config")
    if not isinstance(class_map, Mapping) or not isinstance(config, Mapping):
        raise CheckpointError(
            f"{path}: holds no class map and configuration, so it is not known what it detects. "
            "Use best.pt or last.pt of a training run."
        )
    trained = _read_section(path, config, "model", ModelSection)
    preprocessing = _read_section(path, config, "preprocessing", PreprocessingSection)
    changes = {name: getattr(production, name) for name in MODEL_OVERRIDES}
    changes = {name: value for name, value in changes.items() if value is not None}
    overridden = trained.at_epoch(int(content.get("epoch") or 0)).model_copy(
        update={**changes, "pretrained_backbone": False}
    )
    settings = choose_settings(
        sorted(class_map, key=class_map.__getitem__),
        _read_section(path, config, "dataset", DatasetSection),
        _read_section(path, config, "tiling", TilingSection),
        _read_section(path, config, "evaluation", EvaluationSection),
        overridden,
        production,
    )
    model = build_model(
        overridden,
        len(class_map),
        model_type=_read_section(path, config, "experiment", ExperimentSection).model_type,
        size_divisor=preprocessing.pad_size_divisor,
    )
    load_checkpoint(path, model, strict=True)
    return Detector(model.eval(), preprocessing, settings)


def choose_settings(
    class_names: list[str],
    dataset: DatasetSection,
    tiling: TilingSection,
    evaluation: EvaluationSection,
    model: ModelSection,
    production: ProductionSection,
) -> WindowSettings:
    """Return the settings that ``production`` and the sections of the training run add up to.

    Args:
        class_names: In the order of the labels 1..C.
        dataset: Of the training run, as the next two.
        tiling: ``tile_size`` is the side of a window.
        evaluation: ``score_threshold`` is inherited.
        model: The model section, overrides applied.
        production: What is not null wins.

    Raises:
        ConfigError: See ``load_detector``.
    """
    thresholds = _score_thresholds(class_names, evaluation.score_threshold, production)
    lowest = min(thresholds.values())
    if lowest < model.inference_pre_nms_score_threshold:
        logger.warning(
            "Scores from %g are asked for, but the detector gives none below "
            "inference_pre_nms_score_threshold %g: lower production."
            "inference_pre_nms_score_threshold too",
            lowest,
            model.inference_pre_nms_score_threshold,
        )
    overlap = _overlap(production.overlap_pixels, tiling.tile_size)
    return WindowSettings(
        tile_size=tiling.tile_size,
        overlap=overlap,
        ignore_margin=_margin(production.ignore_margin_pixels, dataset.overlap, overlap),
        score_thresholds=thresholds,
        nms_iou_threshold=model.final_nms_iou_threshold,
        nms_class_agnostic=model.nms_class_agnostic,
        bands=dataset.bands,
        stretch_percentiles=dataset.stretch_percentiles,
    )


def _read_section(
    path: Path, config: Mapping[str, Any], name: str, section: type[AnySection]
) -> AnySection:
    """Return a section as the checkpoint keeps it."""
    if name not in config:
        raise CheckpointError(
            f"{path}: its configuration lacks the section {name!r}. Use best.pt or last.pt of a "
            "training run."
        )
    try:
        return section.model_validate(config[name])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in (name, *first["loc"]))
        raise CheckpointError(
            f"{path}: its configuration does not suit this version of obbflow: {key}: "
            f"{first['msg']}. Use the version that wrote it, see 'versions' in its run_record.json."
        ) from error


def _score_thresholds(
    class_names: list[str], inherited: float, production: ProductionSection
) -> dict[str, float]:
    """Return class name -> threshold, for all classes."""
    given = production.per_class_score_threshold or {}
    unknown = [
        f"{name!r}{did_you_mean(name, class_names)}" for name in given if name not in class_names
    ]
    if unknown:
        raise ConfigError(
            f"production.per_class_score_threshold: the checkpoint knows no class "
            f"{', '.join(unknown)}; its classes are {', '.join(class_names)}. Correct or remove "
            "the name."
        )
    base = inherited if production.score_threshold is None else production.score_threshold
    return {name: given.get(name, base) for name in class_names}


def _overlap(given: int | None, tile_size: int) -> int:
    if given is None:
        return min(DEFAULT_OVERLAP, tile_size // 2)
    if given >= tile_size:
        raise ConfigError(
            f"production.overlap_pixels: must be smaller than the windows, got {given} and "
            f"{tile_size} (tiling.tile_size of the checkpoint)"
        )
    return given


def _margin(given: float | None, trained_overlap: int, overlap: int) -> float:
    most = overlap / 2  # with more, what lies between two margins would belong to no window
    if given is None:
        return min(trained_overlap / 2, most)
    if given > most:
        raise ConfigError(
            f"production.ignore_margin_pixels: must be at most half of the windows' overlap "
            f"({overlap} px), got {given:g}; objects between two margins would be lost"
        )
    return given
