"""Learning-rate schedules as closed forms of the optimizer step, so that resuming is exact."""

import logging
import math
from collections.abc import Callable
from typing import Any

import pandas as pd
from torch.optim import Optimizer

from obbflow.config import TrainingSection
from obbflow.errors import ConfigError
from obbflow.training.optimizer import effective_learning_rate

logger = logging.getLogger(__name__)

Curve = Callable[[int, float], float]
"""(optimizer step from 0, base rate) -> rate."""


class LearningRateSchedule:
    """Sets the rate of every group of an optimizer from the number of steps taken.

    The rate is a function of the position alone. A resumed run therefore continues exactly, and
    rounding never adds up.
    """

    def __init__(self, optimizer: Optimizer, curve: Curve) -> None:
        """Set the rates of step 1.

        Args:
            optimizer: Its groups' ``lr`` are taken as their base rates.
            curve: Rate for a step and a base rate.
        """
        self.optimizer = optimizer
        self.curve = curve
        self.base_rates = [float(group["lr"]) for group in optimizer.param_groups]
        self.position = 0
        self._apply()

    def step(self) -> None:
        """Move on by one optimizer step."""
        self.position += 1
        self._apply()

    def get_last_lr(self) -> list[float]:
        """Return the rate now in use, a group each."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the position: steps taken so far."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a saved position, with the base rates of this schedule."""
        self.position = int(state["position"])
        self._apply()

    def _apply(self) -> None:
        for group, base in zip(self.optimizer.param_groups, self.base_rates, strict=True):
            group["lr"] = self.curve(self.position, base)


def build_scheduler(
    optimizer: Optimizer, training: TrainingSection, steps_per_epoch: int
) -> LearningRateSchedule:
    """Return the schedule of ``training`` over ``optimizer``; call ``step`` each optimizer step.

    ``step``, ``multistep`` and ``cosine_annealing`` change the rate between epochs (of
    ``steps_per_epoch`` steps, however many of them were warm-up), ``one_cycle`` at every step.
    Warm-up step i of W (from 1) uses i / W of the rate that the schedule has there.

    Args:
        optimizer: Its groups hold their base rates, see ``build_optimizer``.
        training: ``schedule``, ``lr_scheduler_*``, ``lr_warmup_steps`` and ``num_epochs``.
        steps_per_epoch: Optimizer steps an epoch, the last partial one included.

    Raises:
        ConfigError: If the warm-up is longer than the whole run.
    """
    curve = rate_curve(training, steps_per_epoch)
    logger.info("Learning rate: %s", describe_schedule(training, steps_per_epoch))
    return LearningRateSchedule(optimizer, curve)


def lr_schedule(training: TrainingSection, steps_per_epoch: int) -> pd.DataFrame:
    """Return the rate of the whole run without training: columns step, epoch (from 1) and lr."""
    curve = rate_curve(training, steps_per_epoch)
    base = effective_learning_rate(training)
    steps = range(training.num_epochs * steps_per_epoch)
    return pd.DataFrame(
        {
            "step": [step + 1 for step in steps],
            "epoch": [step // steps_per_epoch + 1 for step in steps],
            "lr": [curve(step, base) for step in steps],
        }
    )


def describe_schedule(training: TrainingSection, steps_per_epoch: int) -> str:
    """Return the schedule in one line; it says so when the rate never changes after warm-up."""
    warm_up = _warm_up_steps(training)
    start = f"warm-up over {warm_up} steps, then " if warm_up else ""
    rates = lr_schedule(training, steps_per_epoch)["lr"].iloc[warm_up:]
    if rates.nunique() <= 1:
        return (
            f"{start}constant over all {training.num_epochs} epochs "
            f"({training.schedule} never changes it)"
        )
    return f"{start}{training.schedule}, {rates.max():.4g} to {rates.min():.4g}"


def rate_curve(training: TrainingSection, steps_per_epoch: int) -> Curve:
    """Return the rate as a function of the step (from 0) and a group's base rate.

    Raises:
        ConfigError: If the warm-up is longer than the whole run.
        ValueError: If ``steps_per_epoch`` is below 1.
    """
    if steps_per_epoch < 1:
        raise ValueError(f"steps_per_epoch must be at least 1, got {steps_per_epoch}")
    total, warm_up = training.num_epochs * steps_per_epoch, _warm_up_steps(training)
    if warm_up > total:
        raise ConfigError(
            f"training.lr_warmup_steps: {warm_up} steps of warm-up do not fit into the run, which "
            f"has {total} optimizer steps ({training.num_epochs} epochs of {steps_per_epoch}). "
            f"Set it to at most {total}."
        )
    if training.schedule == "one_cycle":
        return lambda step, base: base * _one_cycle(step, total, training)
    by_epoch = _cosine if training.schedule == "cosine_annealing" else _drops

    def curve(step: int, base: float) -> float:
        rate = by_epoch(step // steps_per_epoch, base, training)
        return rate * ((step + 1) / warm_up) if step < warm_up else rate

    return curve


def _warm_up_steps(training: TrainingSection) -> int:
    """Return the steps of warm-up; one_cycle rises by itself and takes none."""
    return 0 if training.schedule == "one_cycle" else training.lr_warmup_steps


def _drops(epoch: int, base: float, training: TrainingSection) -> float:
    """Return the rate in epoch ``epoch`` (from 0) of ``step`` and ``multistep``."""
    if training.schedule == "multistep":
        drops = sum(milestone <= epoch for milestone in training.lr_scheduler_milestones or ())
    else:
        drops = epoch // training.lr_scheduler_step_epochs
    return base * training.lr_scheduler_gamma**drops


def _cosine(epoch: int, base: float, training: TrainingSection) -> float:
    """Return the rate in epoch ``epoch`` (from 0); Loshchilov and Hutter 2017, equation 5."""
    low = min(training.lr_scheduler_cosine_eta_min, base)
    share = min(epoch / training.num_epochs, 1.0)
    return low + (base - low) * (1 + math.cos(math.pi * share)) / 2


def _one_cycle(step: int, total: int, training: TrainingSection) -> float:
    """Return the factor on the peak rate; Smith and Topin 2018, with cosine ramps as in torch."""
    start = 1 / training.lr_scheduler_one_cycle_div_factor
    end = start / training.lr_scheduler_one_cycle_final_div_factor
    peak = training.lr_scheduler_one_cycle_pct_start * total - 1  # step of the highest rate
    if step <= peak and peak > 0:
        return _cosine_ramp(start, 1.0, step / peak)
    last = total - 1
    peak = max(peak, 0.0)  # runs too short for a rise begin at the peak
    return _cosine_ramp(1.0, end, min((step - peak) / (last - peak), 1.0) if last > peak else 1.0)


def _cosine_ramp(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
