"""Which metric decides on the best epoch."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from obbflow.config import CheckpointSection, EvaluationSection
from obbflow.errors import ConfigError, did_you_mean
from obbflow.training.steps import TOTAL
from obbflow.training.validate import METRICS

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BestRule:
    """The metrics column that decides, and its direction."""

    metric: str
    higher_is_better: bool


def choose_best_rule(
    checkpoint: CheckpointSection,
    evaluation: EvaluationSection,
    class_names: Sequence[str] | None,
) -> BestRule:
    """Return what decides on the best epoch, and log it.

    Without ``checkpoint.best_metric`` that is mAP when it is computed during training, else the
    total loss of training, so that there always is a best checkpoint.

    Args:
        checkpoint: ``best_metric`` and ``higher_is_better``.
        evaluation: Whether mAP is computed during training.
        class_names: Of the validation data; None when there is no validation.

    Raises:
        ConfigError: If the metric is unknown, or is never computed in this run.
    """
    has_scores = evaluation.compute_map_every_n_epochs > 0 and class_names is not None
    scores = [*METRICS, *(f"AP_{name}" for name in class_names or ())]
    name = checkpoint.best_metric
    if name is None:
        metric = "val/mAP" if has_scores else f"train/{TOTAL}"
    else:
        metric = _column(name, scores)
        if metric.startswith("val/") and not has_scores:
            raise ConfigError(
                f"checkpoint.best_metric: {name!r} is never computed in this run. Set "
                "evaluation.compute_map_every_n_epochs to 1 or more and give validation images, "
                f"or set checkpoint.best_metric to {TOTAL}."
            )
    higher = checkpoint.higher_is_better
    if higher is None:
        higher = "loss" not in metric
    why = ""
    if name is None and not has_scores:
        why = ", because mAP is not computed during training"
        why += (
            " (there are no validation tiles)"
            if class_names is None
            else " (evaluation.compute_map_every_n_epochs is 0)"
        )
    logger.info(
        "Best epoch: the one with the %s %s%s", "highest" if higher else "lowest", metric, why
    )
    return BestRule(metric, higher)


def _column(name: str, scores: Sequence[str]) -> str:
    """Return the column of a metric named in the configuration."""
    prefix, _, bare = name.rpartition("/")
    if bare in scores and prefix in ("", "val"):
        return f"val/{bare}"
    if (bare == TOTAL or bare.startswith("loss_")) and prefix in ("", "train"):
        return f"train/{bare}"
    valid = [*scores, TOTAL]
    raise ConfigError(
        f"checkpoint.best_metric: there is no metric {name!r}{did_you_mean(name, valid)}. There "
        f"are {', '.join(valid)}, and the losses of the model (loss_*)."
    )
