import math

import pytest
import torch
from torch import nn

from obbflow.config import TrainingSection
from obbflow.errors import ConfigError
from obbflow.training.schedules import build_scheduler, describe_schedule, lr_schedule


def sgd(*rates: float) -> torch.optim.SGD:
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates]
    return torch.optim.SGD(groups)


def section(**values) -> TrainingSection:
    defaults = {"lr_warmup_steps": 0, "learning_rate": 0.1, "gradient_accumulation_steps": 1}
    return TrainingSection(**(defaults | values))


def rates(training: TrainingSection, steps_per_epoch: int) -> list[float]:
    return lr_schedule(training, steps_per_epoch)["lr"].tolist()


def torch_rates(make, steps: int, base: float = 0.1) -> list[float]:
    optimizer = sgd(base)
    scheduler = make(optimizer)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_warm_up_step_i_of_w_has_i_over_w_of_the_rate():
    training = section(learning_rate=0.05, lr_warmup_steps=8, num_epochs=3)
    assert rates(training, 4)[:9] == pytest.approx([0.05 * i / 8 for i in range(1, 9)] + [0.05])


def test_warm_up_does_not_delay_the_epoch_schedule():
    training = section(lr_warmup_steps=3, num_epochs=3, lr_scheduler_step_epochs=1)
    # Epochs of 2 steps: 0.1, 0.01, 0.001, whatever part of them is warm-up.
    expected = [0.1 / 3, 0.2 / 3, 0.01, 0.01, 0.001, 0.001]
    assert rates(training, 2) == pytest.approx(expected)


def test_warm_up_longer_than_the_run_is_refused():
    with pytest.raises(ConfigError, match=r"lr_warmup_steps: 7 .* has 6 optimizer steps"):
        build_scheduler(sgd(0.1), section(lr_warmup_steps=7, num_epochs=3), 2)
    build_scheduler(sgd(0.1), section(lr_warmup_steps=6, num_epochs=3), 2)


@pytest.mark.parametrize(
    ("values", "make"),
    [
        (
            {"lr_scheduler_step_epochs": 3, "lr_scheduler_gamma": 0.5},
            lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5),
        ),
        (
            {"lr_scheduler_milestones": (2, 5)},
            lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5], 0.1),
        ),
        (
            {"lr_scheduler_type": "cosine_annealing", "lr_scheduler_cosine_eta_min": 0.001},
            lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 7, 0.001),
        ),
    ],
    ids=["step", "multistep", "cosine_annealing"],
)
def test_epoch_schedules_equal_those_of_torch(values, make):
    by_epoch = torch_rates(make, 7)
    expected = [rate for rate in by_epoch for _ in range(3)]
    # torch multiplies step by step, so that its rounding adds up.
    assert rates(section(num_epochs=7, **values), 3) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("epochs", "steps"), [(1, 4), (3, 5), (10, 7), (2, 50)])
def test_one_cycle_equals_that_of_torch(epochs, steps):
    def make(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=0.1, total_steps=epochs * steps, cycle_momentum=False
        )

    training = section(num_epochs=epochs, lr_scheduler_type="one_cycle")
    expected = torch_rates(make, epochs * steps)
    assert rates(training, steps) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("total", [1, 2, 3])
def test_one_cycle_of_a_tiny_run_is_finite_and_ends_low(total):
    found = rates(section(num_epochs=1, lr_scheduler_type="one_cycle"), total)
    assert all(math.isfinite(rate) and 0 < rate <= 0.1 for rate in found)
    assert found[-1] == pytest.approx(0.1 / 25 / 1e4)


def test_groups_keep_the_ratio_of_their_rates():
    optimizer = sgd(0.1, 0.02)
    scheduler = build_scheduler(optimizer, section(num_epochs=4, lr_scheduler_step_epochs=1), 2)
    for _ in range(5):
        scheduler.step()
    assert scheduler.get_last_lr() == pytest.approx([0.1 * 0.01, 0.02 * 0.01])


def test_a_restored_position_continues_exactly():
    training = section(num_epochs=6, lr_scheduler_type="cosine_annealing", lr_warmup_steps=5)
    whole = build_scheduler(sgd(0.1), training, 3)
    seen = []
    for _ in range(18):
        seen.append(whole.get_last_lr()[0])
        whole.step()
    resumed = build_scheduler(sgd(0.1), training, 3)
    resumed.load_state_dict({"position": 7})
    for expected in seen[7:]:
        assert resumed.get_last_lr()[0] == expected
        resumed.step()


def test_a_rate_that_never_changes_is_reported():
    constant = describe_schedule(section(num_epochs=4, lr_scheduler_step_epochs=8), 5)
    assert constant == "constant over all 4 epochs (step never changes it)"
    assert "constant" not in describe_schedule(section(num_epochs=9), 5)


@pytest.mark.parametrize(
    ("scaling", "rate"), [("linear", 0.4), ("sqrt", 0.2), ("none", 0.1)], ids=str
)
def test_accumulation_scales_the_rate(scaling, rate):
    training = section(lr_scaling_with_accumulation=scaling, gradient_accumulation_steps=4)
    assert rates(training, 1)[0] == pytest.approx(rate)


def test_the_table_of_the_schedule_counts_steps_and_epochs_from_one():
    table = lr_schedule(section(num_epochs=2), 3)
    assert table["step"].tolist() == [1, 2, 3, 4, 5, 6]
    assert table["epoch"].tolist() == [1, 1, 1, 2, 2, 2]
