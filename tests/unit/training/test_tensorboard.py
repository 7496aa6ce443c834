import builtins

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy import ToyData, ToyDetector, toy_loader

from obbflow.config import EvaluationSection, TensorboardSection, TrainingSection
from obbflow.tables import DETECTIONS, make_table
from obbflow.training import LoopSettings, train
from obbflow.training.steps import StepResult
from obbflow.training.tensorboard import TensorboardLog, draw_tile


class Pictured(ToyData):
    def tile_image(self, index: int) -> torch.Tensor:
        return torch.full((3, 16, 16), 10 * index, dtype=torch.uint8)


def settings(**tensorboard) -> LoopSettings:
    return LoopSettings(
        TrainingSection(num_epochs=2, lr_warmup_steps=0, gradient_accumulation_steps=2),
        EvaluationSection(compute_map_every_n_epochs=1, score_threshold=0.0),
        tensorboard=TensorboardSection(**tensorboard),
    )


def test_scalars_of_steps_and_epochs_and_pictures_are_shown(tmp_path):
    data = Pictured(6)
    outcome = train(
        ToyDetector(),
        toy_loader(data),
        tmp_path,
        settings(max_images_to_log=2),
        val_loader=toy_loader(data),
    )
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    losses = events.Scalars("train/total_loss")
    assert [event.step for event in losses] == [1, 2, 3, 4]  # two optimizer steps an epoch
    first = outcome.history[0]
    assert (2 * losses[0].value * 2 + losses[1].value * 2) / 6 == pytest.approx(
        first["train/total_loss"], rel=1e-5
    )
    assert {"train/learning_rate", "train/grad_norm", "train/grad_norm_rpn"} <= set(
        events.Tags()["scalars"]
    )
    assert events.Scalars("val/mAP")[1].value == pytest.approx(outcome.history[1]["val/mAP"])
    assert events.Tags()["images"] == ["val_images/tile_0", "val_images/tile_1"]


def test_truth_and_detections_have_their_own_colours():
    data = ToyData(1)
    image = torch.zeros(3, 16, 16, dtype=torch.uint8)
    found = {"image_id": ["tile_0"], "class_name": ["ship"], "score": [0.9]}
    box = {"cx": [4.0], "cy": [4.0], "w": [4.0], "h": [4.0], "angle": [0.0]}
    detections = make_table(found | box, DETECTIONS)
    truth = data.ground_truth
    colours = {
        tuple(p)
        for p in draw_tile(image, truth, detections).permute(1, 2, 0).reshape(-1, 3).tolist()
    }
    assert colours == {(0, 0, 0), (80, 220, 100), (255, 90, 60)}
    ignored = draw_tile(image, truth.assign(difficult=True), detections.iloc[:0])
    assert {tuple(p) for p in ignored.permute(1, 2, 0).reshape(-1, 3).tolist()} == {
        (0, 0, 0),
        (150, 150, 150),
    }


def test_a_broken_package_is_one_warning_and_training_goes_on(tmp_path, monkeypatch, caplog):
    real = builtins.__import__

    def broken(name, *arguments, **options):
        if name.startswith("torch.utils.tensorboard"):
            raise AttributeError("module 'numpy' has no attribute 'bool8'")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", broken)
    outcome = train(ToyDetector(), toy_loader(ToyData(4)), tmp_path, settings())
    warnings = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert len(outcome.history) == 2
    assert len(warnings) == 1
    assert "TensorBoard cannot be used (AttributeError" in warnings[0]
    assert "pip install tensorboard" in warnings[0]


def test_a_fault_during_training_switches_it_off_with_one_warning(caplog):
    class Failing:
        calls = 0

        def add_scalar(self, *_arguments) -> None:
            self.calls += 1
            raise OSError("No space left on device")

    writer = Failing()
    log = TensorboardLog(writer, TensorboardSection())
    for step in (1, 2, 3):
        log.log_step(step, StepResult(losses=[({"total_loss": 1.0}, 2)]), [0.1])
    log.close()
    assert writer.calls == 1
    assert len(caplog.records) == 1
    assert "switched off for the rest of this run (OSError" in caplog.text


def test_it_can_be_switched_off(tmp_path):
    train(ToyDetector(), toy_loader(ToyData(4)), tmp_path, settings(enabled=False))
    assert not (tmp_path / "tensorboard").exists()


def test_only_data_with_pictures_shows_them(caplog):
    class Recording:
        def __init__(self) -> None:
            self.shown = []

        def add_image(self, tag, picture, epoch) -> None:
            self.shown.append((tag, tuple(picture.shape), epoch))

    writer = Recording()
    log = TensorboardLog(writer, TensorboardSection())

    log.log_images(1, ToyData(2), make_table([], DETECTIONS))
    assert writer.shown == []

    log.log_images(1, Pictured(2), make_table([], DETECTIONS))
    assert writer.shown == [(f"val_images/tile_{n}", (3, 16, 16), 1) for n in range(2)]
    assert caplog.records == []  # the first call was no failure that switched the view off
