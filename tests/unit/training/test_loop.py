import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy import KeyedData, ToyData, ToyDetector, toy_loader

from obbflow.config import (
    CheckpointSection,
    DataLoaderSection,
    EvaluationSection,
    TensorboardSection,
    TrainingSection,
)
from obbflow.data.loader import build_loader
from obbflow.data.sampler import EpochSampler
from obbflow.errors import CheckpointError, ConfigError, TrainingError
from obbflow.training import LoopSettings, train, train_one_epoch
from obbflow.training.checkpoints import CheckpointManager, read_checkpoint
from obbflow.training.loop import is_scored
from obbflow.training.metrics import TIME_COLUMNS, read_rows
from obbflow.training.state import BestMark, is_better, seed_everything
from obbflow.training.status import read_status

EPOCHS = 4


class Killed(BaseException):
    """Stands for the end of a process."""


class Doomed(ToyDetector):
    """Dies in the ``last``-th training batch."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.left = last

    def forward(self, images, targets=None):
        self.left -= self.training
        if self.left < 0:
            raise Killed
        return super().forward(images, targets)


def settings(**training) -> LoopSettings:
    defaults = {
        "num_epochs": EPOCHS,
        "learning_rate": 0.02,
        "lr_warmup_steps": 4,
        "lr_scheduler_type": "cosine_annealing",
        "gradient_accumulation_steps": 2,
        "use_lr_param_groups": True,
        "progress_bar": "none",
    }
    return LoopSettings(
        TrainingSection(**(defaults | training)),
        EvaluationSection(compute_map_every_n_epochs=2),
        CheckpointSection(),
        TensorboardSection(enabled=False),
        seed=3,
    )


def loader(*, workers: int = 0, length: int = 10, shuffle: bool = True):
    data = KeyedData(length)
    sampler = EpochSampler(len(data), shuffle=shuffle, seed=3)
    section = DataLoaderSection(batch_size=2, num_workers=workers)
    return build_loader(data, sampler, section, device_type="cpu")


def model() -> ToyDetector:
    seed_everything(3, 0)
    return ToyDetector()


def rows_without_time(run_dir: Path) -> list[dict]:
    rows = read_rows(run_dir / "metrics.csv")
    return [{k: v for k, v in row.items() if k not in TIME_COLUMNS} for row in rows]


def weights(run_dir: Path) -> dict:
    return read_checkpoint(run_dir / "last.pt")["model"]


def assert_same_run(one: Path, two: Path) -> None:
    """Bit by bit: weights, optimizer, metrics and the best epoch."""
    first, second = weights(one), weights(two)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert rows_without_time(one) == rows_without_time(two)
    states = [read_checkpoint(each / "last.pt") for each in (one, two)]
    momenta = [state["optimizer"]["state"] for state in states]
    assert all(
        torch.equal(momenta[0][key]["momentum_buffer"], momenta[1][key]["momentum_buffer"])
        for key in momenta[0]
    )
    assert states[0]["best"] == states[1]["best"]
    best = [read_checkpoint(each / "best.pt") for each in (one, two)]
    assert best[0]["epoch"] == best[1]["epoch"]
    assert all(torch.equal(best[0]["model"][name], best[1]["model"][name]) for name in first)


def run(folder: Path, *, workers: int = 0, of=None, resume: Path | None = None, **training):
    return train(
        of or model(),
        loader(workers=workers),
        folder,
        settings(**training),
        val_loader=loader(shuffle=False, length=4),
        resume=resume,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that was not interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


def test_the_same_seed_gives_the_same_run(whole, tmp_path):
    run(tmp_path)
    assert_same_run(whole, tmp_path)


def test_what_was_drawn_before_does_not_matter(whole, tmp_path):
    start = model()
    torch.rand(100)
    run(tmp_path, of=start)
    assert_same_run(whole, tmp_path)


@pytest.mark.parametrize("batches", [5, 8, 19], ids=["at an epoch's end", "within 2", "within 4"])
def test_a_killed_run_continues_exactly(whole, tmp_path, batches):
    torch.manual_seed(99)
    doomed = Doomed(batches)
    doomed.load_state_dict(model().state_dict())
    with pytest.raises(Killed):
        run(tmp_path, of=doomed)
    run(tmp_path, of=ToyDetector(), resume=tmp_path / "last.pt")
    assert_same_run(whole, tmp_path)


def test_loading_processes_change_nothing_also_not_across_a_kill(whole, tmp_path):
    doomed = Doomed(13)
    doomed.load_state_dict(model().state_dict())
    with pytest.raises(Killed):
        run(tmp_path, of=doomed, workers=2)
    run(tmp_path, of=ToyDetector(), workers=2, resume=tmp_path / "last.pt")
    assert_same_run(whole, tmp_path)


_ENDLESS = """
import sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
import torch
torch.set_num_threads({threads})
import test_loop

class Slow(test_loop.ToyDetector):
    def forward(self, images, targets=None):
        time.sleep(0.1 if self.training else 0)
        return super().forward(images, targets)

start = Slow()
start.load_state_dict(test_loop.model().state_dict())
test_loop.run(Path({folder!r}), of=start)
"""


def test_a_run_that_is_killed_by_the_system_continues_exactly(whole, tmp_path):
    script = _ENDLESS.format(
        here=str(Path(__file__).parent), folder=str(tmp_path), threads=torch.get_num_threads()
    )
    process = subprocess.Popen([sys.executable, "-c", script], env=dict(os.environ))
    deadline = time.monotonic() + 120
    while (read_status(tmp_path) or {}).get("epoch", 0) < 2:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline, "the run never finished epoch 2"
        time.sleep(0.02)
    time.sleep(0.25)  # into the next epoch
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 2 <= read_checkpoint(tmp_path / "last.pt")["epoch"] < EPOCHS
    run(tmp_path, of=ToyDetector(), resume=tmp_path / "last.pt")
    assert_same_run(whole, tmp_path)


def test_resuming_in_another_folder_carries_the_history_along(whole, tmp_path):
    run(tmp_path, of=ToyDetector(), resume=whole / "epoch_0001.pt")
    assert rows_without_time(tmp_path) == rows_without_time(whole)


def test_a_best_file_younger_than_the_state_is_replaced_by_the_right_one(whole, tmp_path):
    run(tmp_path)
    manager = CheckpointManager(tmp_path)
    state = read_checkpoint(tmp_path / "epoch_0003.pt")
    assert state["best"]["epoch"] == 2
    manager.save_best({"kind": "model", "epoch": 4, "model": state["model"]})
    run(tmp_path, of=ToyDetector(), resume=tmp_path / "epoch_0003.pt")
    assert_same_run(whole, tmp_path)


def test_without_its_best_file_a_run_chooses_the_best_anew(whole, tmp_path, caplog):
    outcome = run(tmp_path, of=ToyDetector(), resume=whole / "epoch_0003.pt")
    assert outcome.best.epoch == 4
    assert read_checkpoint(outcome.best_checkpoint)["epoch"] == 4
    assert "The weights of the best epoch so far (2, val/mAP" in caplog.text


@pytest.mark.parametrize("metric", ["AP50", "total_loss"])
def test_values_of_another_metric_are_not_compared(whole, tmp_path, caplog, metric):
    chosen = replace(settings(), checkpoint=CheckpointSection(best_metric=metric))
    outcome = train(
        ToyDetector(),
        loader(),
        tmp_path,
        chosen,
        val_loader=loader(shuffle=False, length=4),
        resume=whole / "epoch_0003.pt",
    )
    prefix = "train" if metric == "total_loss" else "val"
    value = outcome.history[-1][f"{prefix}/{metric}"]
    assert outcome.best == BestMark(f"{prefix}/{metric}", value, 4)
    assert f"was chosen by val/mAP, now {prefix}/{metric} decides" in caplog.text


def test_a_run_killed_after_its_last_checkpoint_completes_its_files(whole, tmp_path):
    run(tmp_path)
    (tmp_path / "metrics.csv").unlink()
    outcome = run(tmp_path, of=ToyDetector(), resume=tmp_path / "last.pt")
    assert rows_without_time(tmp_path) == rows_without_time(whole)
    assert len(outcome.history) == EPOCHS


def test_epochs_are_counted_from_the_very_first(whole, tmp_path):
    outcome = run(tmp_path, resume=whole / "epoch_0003.pt")
    assert [row["epoch"] for row in outcome.history] == [1, 2, 3, 4]


def test_averages_cover_their_own_epoch_only():
    detector = model()
    optimizer = torch.optim.SGD(detector.parameters(), lr=0.0)
    training = TrainingSection()
    detector.dropout = 0.0
    batches = toy_loader(ToyData(9), batch_size=4)
    rows = [train_one_epoch(detector, batches, optimizer, None, training) for _ in range(2)]
    assert rows[0]["train/total_loss"] == rows[1]["train/total_loss"]
    with torch.no_grad():
        total = sum(
            float(sum(detector(images, targets).values())) * len(images)
            for images, targets in batches
        )
    assert rows[0]["train/total_loss"] == pytest.approx(total / 9, rel=1e-6)


def test_an_epoch_reports_its_rates_norms_and_counts(whole):
    row = rows_without_time(whole)[0]
    assert row["train/total_loss"] == pytest.approx(
        row["train/loss_box"] + row["train/loss_class"], rel=1e-6
    )
    assert row["train/roi_num_pos"] == 2.0
    assert row["nonfinite_steps"] == 0
    assert row["lr_min"] <= row["lr"] <= row["lr_max"]
    assert row["lr_max"] / row["lr_min"] == pytest.approx(4.0)
    assert row["grad_norm_max"] >= row["grad_norm_mean"] > 0
    assert {"grad_norm_mean_backbone", "grad_norm_mean_rpn", "grad_norm_mean_roi"} <= set(row)


def test_metrics_that_were_not_computed_are_absent(whole):
    rows = rows_without_time(whole)
    assert [row["val/mAP"] is None for row in rows] == [True, False, True, False]
    assert "val/mAP" not in read_checkpoint(whole / "epoch_0003.pt")["history"][2]


def test_the_best_file_holds_the_weights_of_the_best_epoch(tmp_path):
    outcome = train(model(), loader(), tmp_path, settings())  # no validation: total loss decides
    losses = {row["epoch"]: row["train/total_loss"] for row in outcome.history}
    assert outcome.best == BestMark("train/total_loss", min(losses.values()), outcome.best.epoch)
    best = read_checkpoint(outcome.best_checkpoint)
    assert best["epoch"] == min(losses, key=losses.__getitem__)
    assert "optimizer" not in best
    epoch_file = read_checkpoint(tmp_path / f"epoch_{best['epoch']:04d}.pt")
    assert all(torch.equal(best["model"][k], epoch_file["model"][k]) for k in best["model"])


@pytest.mark.parametrize(
    ("value", "best", "higher", "expected"),
    [
        (0.0, None, True, True),
        (-1.0, None, True, True),
        (0.5, 0.5, True, False),
        (0.6, 0.5, True, True),
        (0.6, 0.5, False, False),
        (float("nan"), None, True, False),
        (float("inf"), 0.5, True, False),
        (None, None, True, False),
    ],
)
def test_only_a_strictly_better_finite_value_wins(value, best, higher, expected):
    mark = None if best is None else BestMark("val/mAP", best, 1)
    assert is_better(value, mark, higher_is_better=higher) is expected


@pytest.mark.parametrize(
    ("epochs", "every", "scored"),
    [
        (5, 2, [2, 4, 5]),
        (4, 2, [2, 4]),
        (3, 5, [3]),
        (7, 3, [3, 6, 7]),
        (3, 1, [1, 2, 3]),
        (3, 0, []),
    ],
)
def test_epochs_are_scored_on_multiples_and_at_the_end(epochs, every, scored):
    chosen = LoopSettings(
        TrainingSection(num_epochs=epochs), EvaluationSection(compute_map_every_n_epochs=every)
    )
    assert [epoch for epoch in range(1, epochs + 1) if is_scored(epoch, chosen)] == scored


def test_other_epochs_do_not_touch_the_validation_loader(tmp_path):
    class Counting:
        dataset = KeyedData(4)
        passes = 0

        def __iter__(self):
            self.passes += 1
            return iter(loader(shuffle=False, length=4))

    counting = Counting()
    train(model(), loader(), tmp_path, settings(), val_loader=counting)
    assert counting.passes == 2  # epochs 2 and 4


def test_a_checkpoint_of_another_model_is_refused_before_training(whole, tmp_path):
    other = ToyDetector()
    other.roi_head = torch.nn.Linear(8, 5)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"roi_head\.weight is \(2, 8\), the model's \(5, 8"):
        run(tmp_path, of=other, resume=whole / "last.pt")
    assert all(torch.equal(before[name], value) for name, value in other.state_dict().items())
    assert not list(tmp_path.glob("*.pt"))


def test_an_optimizer_state_of_another_layout_is_refused(whole, tmp_path):
    with pytest.raises(CheckpointError, match="its optimizer state does not fit"):
        run(tmp_path, resume=whole / "epoch_0003.pt", use_lr_param_groups=False)


def test_a_file_of_weights_restarts_the_rest_with_one_warning(whole, tmp_path, caplog):
    best_epoch = read_checkpoint(whole / "best.pt")["epoch"]
    outcome = run(tmp_path, resume=whole / "best.pt")
    epochs = [row["epoch"] for row in outcome.history]
    assert epochs == list(range(best_epoch + 1, EPOCHS + 1))
    warnings = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "holds weights only: momentum, metrics history and best marks start anew" in warnings[0]


def test_rates_of_a_resumed_run_are_those_of_its_own_configuration(whole, tmp_path):
    outcome = run(tmp_path, resume=whole / "epoch_0003.pt", learning_rate=0.002)
    former = rows_without_time(whole)[3]["lr"]
    low = 1e-6  # eta_min
    assert outcome.history[3]["lr"] - low == pytest.approx((former - low) / 10, rel=1e-2)


def test_no_batch_is_an_error(tmp_path):
    with pytest.raises(TrainingError, match="the loader gives no batch"):
        train(model(), toy_loader(ToyData(0)), tmp_path, settings())


def test_weights_are_saved_without_the_names_of_wrappers(tmp_path):
    class Wrapper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = ToyDetector()

        def forward(self, *arguments):
            return self.module(*arguments)

    train(Wrapper(), loader(), tmp_path, settings(num_epochs=1, lr_warmup_steps=0))
    assert weights(tmp_path).keys() == ToyDetector().state_dict().keys()


def test_the_metric_that_decides_is_checked_at_the_start(tmp_path):
    chosen = settings()
    for metric, message in [
        ("AP_shipp", "no metric 'AP_shipp', did you mean 'AP_ship'"),
        ("f1", "There are mAP, AP50, AP75, AP50_95, AP_plane, AP_ship, total_loss"),
    ]:
        wrong = LoopSettings(
            chosen.training, chosen.evaluation, CheckpointSection(best_metric=metric)
        )
        with pytest.raises(ConfigError, match=message):
            train(model(), loader(), tmp_path, wrong, val_loader=loader(length=4))
    assert not list(tmp_path.iterdir())
