import json
import logging
from dataclasses import replace

import pytest
import torch
from toy import CLASSES, ToyDetector, toy_sections, toy_tiles

from obbflow.errors import CheckpointError, ConfigError, TrainingError
from obbflow.training import run as run_module
from obbflow.training.checkpoints import read_checkpoint
from obbflow.training.metrics import TIME_COLUMNS
from obbflow.training.run import build_tiles, load_result, run_training
from obbflow.training.status import read_status, run_lock


class Killed(BaseException):
    """Stands for the end of a process."""


@pytest.fixture
def data(tmp_path):
    return toy_tiles(tmp_path / "tiles")


@pytest.fixture(autouse=True)
def built(monkeypatch):
    """Let runs train the toy detector; its ``dies_in_batch`` kills the next run."""
    calls = {"dies_in_batch": None}

    def build(config, num_classes, **options):
        calls["built"] = {"config": config, "num_classes": num_classes, **options}
        model = ToyDetector()
        forward, left = model.forward, [calls["dies_in_batch"]]

        def dying(images, targets=None):
            if left[0] is not None and model.training:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
            return forward(images, targets)

        model.forward = dying
        return model

    monkeypatch.setattr(run_module, "build_model", build)
    return calls


def untimed(metrics):
    return metrics.drop(columns=[name for name in TIME_COLUMNS if name in metrics])


def interrupted(data, sections, run_id, built, batches=3):
    built["dies_in_batch"] = batches
    with pytest.raises(Killed):
        run_training(data, sections, run_id)
    built["dies_in_batch"] = None


def test_a_run_leaves_its_results_in_its_folder(data, tmp_path):
    result = run_training(data, toy_sections(tmp_path), "r1")
    folder = tmp_path / "06_models" / "runs" / "r1"
    assert result.metrics["epoch"].tolist() == [1, 2]
    assert result.last_checkpoint == folder / "last.pt"
    assert result.best_checkpoint == folder / "best.pt"
    status = read_status(folder)
    assert (status["state"], status["epoch"], status["resumed_from"]) == ("finished", 2, None)
    assert status["configuration_hash"] == result.record["configuration_hash"]
    assert json.loads((folder / "run_record.json").read_text()) == json.loads(
        json.dumps(result.record)
    )


def test_the_record_tells_what_it_takes_to_run_again(data, tmp_path):
    sections = toy_sections(tmp_path)
    record = run_training(data, sections, "r1").record
    assert record["configuration"] == sections.as_dict()
    assert record["class_map"] == {"plane": 1, "ship": 2}
    assert record["tiles"] == {"train": 4, "val": 2}
    assert record["devices"]["used"] == "cpu"
    assert record["libraries"]["torch"] == torch.__version__
    assert record["epochs_completed"] == 2
    assert record["best"]["metric"] == "val/mAP"
    assert record["peak_memory_bytes"]["host"] > 50_000_000
    assert set(record["git"]) == {"commit", "describe", "dirty", "branch", "date"}


def test_checkpoints_carry_what_rebuilds_their_model(data, tmp_path):
    sections = toy_sections(tmp_path)
    result = run_training(data, sections, "r1")
    for path in (result.best_checkpoint, result.last_checkpoint):
        content = read_checkpoint(path)
        assert content["class_map"] == {"plane": 1, "ship": 2}
        assert content["config"] == sections.as_dict()
        assert content["data_hash"] == result.record["data_hash"]
        assert content["versions"]["torch"] == torch.__version__


def test_the_model_gets_its_classes_weights_and_divisor(data, tmp_path, built):
    run_training(data, toy_sections(tmp_path, preprocessing={"pad_size_divisor": 16}), "r1")
    assert built["built"]["num_classes"] == 2
    assert built["built"]["class_weights"].tolist() == [1.0, 0.5, 1.5]
    assert built["built"]["size_divisor"] == 16


def test_an_interrupted_run_is_found_and_continued_in_its_folder(data, tmp_path, built):
    whole = run_training(data, toy_sections(tmp_path / "whole"), "w")
    interrupted(data, toy_sections(tmp_path), "r1", built)
    runs = tmp_path / "06_models" / "runs"
    assert read_status(runs / "r1")["state"] == "failed"
    again = toy_sections(tmp_path, checkpoint={"discover_previous_run": True})
    result = run_training(data, again, "r2")
    assert [entry.name for entry in runs.iterdir()] == ["r1"]
    assert result.record["run_id"] == result.record["resumed_from"] == "r1"
    assert untimed(result.metrics).equals(untimed(whole.metrics))
    first, second = (read_checkpoint(each.last_checkpoint)["model"] for each in (whole, result))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert read_status(runs / "r1")["state"] == "finished"


def test_a_run_killed_in_its_first_epoch_starts_again_in_its_folder(data, tmp_path, built):
    interrupted(data, toy_sections(tmp_path), "r1", built, batches=1)
    again = toy_sections(tmp_path, checkpoint={"discover_previous_run": True})
    result = run_training(data, again, "r2")
    assert result.metrics["epoch"].tolist() == [1, 2]
    assert result.last_checkpoint.parent.name == "r1"


def test_the_finished_run_of_a_configuration_is_used_and_not_trained_again(
    data, tmp_path, caplog, built
):
    caplog.set_level(logging.INFO)
    first = run_training(data, toy_sections(tmp_path), "r1")
    before = {path: path.stat().st_mtime_ns for path in first.last_checkpoint.parent.iterdir()}
    built.pop("built")
    again = toy_sections(tmp_path, checkpoint={"discover_previous_run": True})
    result = run_training(data, again, "r2")
    assert "built" not in built
    assert "r1, is finished: its results are used" in caplog.text
    assert result.metrics.equals(first.metrics)
    assert result.record == json.loads(json.dumps(first.record))
    assert result.best_checkpoint == first.best_checkpoint
    after = {path: path.stat().st_mtime_ns for path in first.last_checkpoint.parent.iterdir()}
    assert after == before


def test_an_unfinished_run_is_continued_also_when_a_later_one_is_finished(data, tmp_path, built):
    interrupted(data, toy_sections(tmp_path), "r1", built)
    run_training(data, toy_sections(tmp_path), "r2")
    again = toy_sections(tmp_path, checkpoint={"discover_previous_run": True})
    assert run_training(data, again, "r3").record["run_id"] == "r1"
    # Now both are finished: the one that was started last is used.
    assert run_training(data, again, "r4").record["run_id"] == "r2"


def test_a_killed_training_from_weights_is_continued_by_the_same_request_only(
    data, tmp_path, built
):
    run_training(data, toy_sections(tmp_path), "r1")
    source = {"load_from_experiment": "r1", "resume_from_checkpoint_epoch": False}
    interrupted(data, toy_sections(tmp_path, checkpoint=source), "r2", built)
    others = (
        {},
        {"load_from_experiment": "r1"},
        {**source, "load_exclude_prefixes": ["roi_head."]},
        {"load_from_checkpoint": tmp_path / "06_models" / "runs" / "r1" / "best.pt"},
    )
    for number, other in enumerate(others):
        request = {**other, "discover_previous_run": True}
        longer = {"num_epochs": 3} if "load_from_checkpoint" in other else {}
        sections = toy_sections(tmp_path, checkpoint=request, training=longer)
        assert run_training(data, sections, f"other{number}").record["run_id"] != "r2"
    again = toy_sections(tmp_path, checkpoint={**source, "discover_previous_run": True})
    result = run_training(data, again, "r9")
    assert result.record["run_id"] == "r2"
    assert result.metrics["epoch"].tolist() == [1, 2]


def test_the_record_of_a_continued_run_covers_all_its_sessions(data, tmp_path, built):
    interrupted(data, toy_sections(tmp_path), "r1", built)
    folder = tmp_path / "06_models" / "runs" / "r1"
    began = json.loads((folder / "run_record.json").read_text())["started"]
    again = toy_sections(tmp_path, checkpoint={"discover_previous_run": True})
    result = run_training(data, again, "r2")
    record, first = result.record, result.metrics["epoch_seconds"].iloc[0]
    assert record["started"] == read_status(folder)["started"] == began < record["session_started"]
    assert record["seconds"] == pytest.approx(first + record["session_seconds"], rel=1e-9)
    assert record["epochs_completed"] == 2


def test_epochs_before_a_file_of_weights_count_as_completed(data, tmp_path):
    former = run_training(
        data, toy_sections(tmp_path, checkpoint={"best_metric": "loss_box"}), "r1"
    )
    epoch = former.record["best"]["epoch"]
    start = toy_sections(
        tmp_path,
        training={"num_epochs": 4},
        checkpoint={"load_from_checkpoint": former.best_checkpoint},
    )
    record = run_training(data, start, "r2").record
    assert record["epochs_completed"] == 4
    assert len(record["timing"]["epoch_seconds"]) == 4 - epoch


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"learning_rate": 0.5}},
        {"experiment": {"seed": 9}},
        {"model": {"fpn_channels": 8}},
    ],
    ids=["rate", "seed", "model"],
)
def test_a_run_of_another_configuration_is_not_continued(data, tmp_path, built, caplog, changes):
    caplog.set_level(logging.INFO)
    interrupted(data, toy_sections(tmp_path), "r1", built)
    again = toy_sections(tmp_path, checkpoint={"discover_previous_run": True}, **changes)
    result = run_training(data, again, "r2")
    assert result.last_checkpoint.parent.name == "r2"
    assert "No earlier run of this configuration and data" in caplog.text


def test_paths_progress_and_loading_do_not_make_another_configuration(data, tmp_path, built):
    interrupted(data, toy_sections(tmp_path), "r1", built)
    again = toy_sections(
        tmp_path,
        checkpoint={"discover_previous_run": True, "keep_last_n": 2},
        training={"progress_bar": "none"},
        data_loader={"num_workers": 0, "pin_memory": False},
        tiling={"num_workers": 7},
        tensorboard={"enabled": False, "log_images": False},
    )
    assert run_training(data, again, "r2").record["run_id"] == "r1"


def test_other_data_are_not_continued(data, tmp_path, built):
    interrupted(data, toy_sections(tmp_path), "r1", built)
    moved = data.tile_annotations.assign(cx=9.0)
    again = toy_sections(tmp_path, checkpoint={"discover_previous_run": True})
    result = run_training(replace(data, tile_annotations=moved), again, "r2")
    assert result.record["run_id"] == "r2"


def test_a_named_run_is_continued_in_a_new_folder(data, tmp_path, built):
    whole = run_training(data, toy_sections(tmp_path / "whole"), "w")
    interrupted(data, toy_sections(tmp_path), "r1", built)
    again = toy_sections(tmp_path, checkpoint={"load_from_experiment": "r1"})
    result = run_training(data, again, "r2")
    assert result.record["resumed_from"] == "r1"
    assert result.last_checkpoint.parent.name == "r2"
    assert untimed(result.metrics).equals(untimed(whole.metrics))
    assert read_checkpoint(result.best_checkpoint)["epoch"] == result.record["best"]["epoch"]
    assert built["built"]["config"].pretrained_backbone is False


def test_a_complete_named_run_is_not_trained_further(data, tmp_path, built):
    first = run_training(data, toy_sections(tmp_path), "r1")
    built.pop("built")
    again = toy_sections(tmp_path, checkpoint={"load_from_experiment": "r1"})
    assert run_training(data, again, "r2").last_checkpoint == first.last_checkpoint
    assert "built" not in built


@pytest.mark.parametrize(
    "request_",
    [
        {"load_exclude_prefixes": ["roi_head."]},
        {"load_include_prefixes": ["backbone."]},
        {"resume_from_checkpoint_epoch": False},
    ],
    ids=["exclude", "include", "epoch 1"],
)
def test_the_weights_of_a_complete_named_run_start_a_new_one(data, tmp_path, request_):
    former = run_training(data, toy_sections(tmp_path), "r1")
    sections = toy_sections(
        tmp_path,
        training={"learning_rate": 1e-30},
        checkpoint={"load_from_experiment": "r1", **request_},
    )
    result = run_training(data, sections, "r2")
    assert result.record["run_id"] == "r2"
    assert result.metrics["epoch"].tolist() == [1, 2]
    first, second = (read_checkpoint(each.best_checkpoint)["model"] for each in (former, result))
    assert torch.equal(first["backbone.0.weight"], second["backbone.0.weight"])
    is_partial = "resume_from_checkpoint_epoch" not in request_
    assert torch.equal(first["roi_head.weight"], second["roi_head.weight"]) is not is_partial


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "of another training: other tiles, labels or classes"),
        ({"loss": {"focal_gamma": 3.0}}, r"of another training: loss\.focal_gamma 2\.0 -> 3\.0"),
        ({"tiling": {"tile_size": 512}}, r"tiling\.tile_size \d+ -> 512"),
        ({"training": {"num_epochs": 1}}, r"already has 2 of training\.num_epochs = 1 epochs"),
    ],
    ids=["data", "loss", "tiling", "epochs"],
)
def test_results_of_another_training_are_not_passed_off(data, tmp_path, changes, message):
    run_training(data, toy_sections(tmp_path), "r1")
    if not changes:
        data = replace(data, tile_annotations=data.tile_annotations.assign(cx=9.0))
    again = toy_sections(tmp_path, checkpoint={"load_from_experiment": "r1"}, **changes)
    with pytest.raises(ConfigError, match=message):
        run_training(data, again, "r2")
    assert not (tmp_path / "06_models" / "runs" / "r2").exists()


@pytest.mark.parametrize("named", [True, False], ids=["run", "file"])
def test_continuing_on_other_tiles_is_a_warning(data, tmp_path, caplog, built, named):
    interrupted(data, toy_sections(tmp_path), "r1", built)
    last = tmp_path / "06_models" / "runs" / "r1" / "last.pt"
    start = {"load_from_experiment": "r1"} if named else {"load_from_checkpoint": last}
    again = toy_sections(tmp_path, checkpoint=start)
    run_training(data, again, "same")
    assert "other tiles or labels" not in caplog.text
    moved = replace(data, tile_annotations=data.tile_annotations.assign(cx=9.0))
    run_training(moved, again, "moved")
    assert "r1/last.pt was trained on other tiles or labels" in caplog.text


def test_more_epochs_continue_a_finished_run_where_the_schedule_allows(data, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    run_training(data, toy_sections(tmp_path), "r1")
    longer = toy_sections(
        tmp_path, training={"num_epochs": 3}, checkpoint={"load_from_experiment": "r1"}
    )
    assert run_training(data, longer, "r2").metrics["epoch"].tolist() == [1, 2, 3]
    assert "with other settings: training.num_epochs 2 -> 3" in caplog.text


def test_more_epochs_under_a_stretched_schedule_are_refused(data, tmp_path):
    cosine = {"lr_scheduler_type": "cosine_annealing"}
    run_training(data, toy_sections(tmp_path, training=cosine), "r1")
    longer = toy_sections(
        tmp_path,
        training={**cosine, "num_epochs": 3},
        checkpoint={"load_from_experiment": "r1"},
    )
    with pytest.raises(ConfigError, match=r"cosine_annealing over 2 epochs, got 3"):
        run_training(data, longer, "r2")
    assert not (tmp_path / "06_models" / "runs" / "r2").exists()


def test_an_unknown_run_is_refused_with_the_known_ones(data, tmp_path):
    run_training(data, toy_sections(tmp_path), "run_a")
    wrong = toy_sections(tmp_path, checkpoint={"load_from_experiment": "run_b"})
    with pytest.raises(ConfigError, match=r"no run 'run_b' .* did you mean 'run_a'"):
        run_training(data, wrong, "r2")


def test_the_weights_of_a_file_start_a_new_run(data, tmp_path):
    former = run_training(data, toy_sections(tmp_path), "r1")
    weights = tmp_path / "weights.pt"
    torch.save({"state_dict": read_checkpoint(former.last_checkpoint)["model"]}, weights)
    start = {"checkpoint": {"load_from_checkpoint": weights}, "training": {"learning_rate": 1e-30}}
    result = run_training(data, toy_sections(tmp_path, **start), "r2")
    assert result.metrics["epoch"].tolist() == [1, 2]
    first, second = (read_checkpoint(each.last_checkpoint)["model"] for each in (former, result))
    assert torch.equal(first["roi_head.weight"], second["roi_head.weight"])


def test_our_own_full_checkpoint_is_resumed(data, tmp_path):
    former = run_training(data, toy_sections(tmp_path), "r1")
    first_epoch = former.last_checkpoint.with_name("epoch_0001.pt")
    start = toy_sections(tmp_path, checkpoint={"load_from_checkpoint": first_epoch})
    result = run_training(data, start, "r2")
    assert untimed(result.metrics).equals(untimed(former.metrics))
    assert result.record["resumed_from"] == str(first_epoch)


def test_a_complete_checkpoint_leaves_nothing_to_train(data, tmp_path):
    former = run_training(data, toy_sections(tmp_path), "r1")
    start = toy_sections(tmp_path, checkpoint={"load_from_checkpoint": former.last_checkpoint})
    with pytest.raises(ConfigError, match=r"already has 2 of training\.num_epochs = 2 epochs"):
        run_training(data, start, "r2")


def test_continuing_an_older_epoch_takes_its_own_best_along(data, tmp_path):
    former = run_training(data, toy_sections(tmp_path, training={"num_epochs": 4}), "r1")
    older = former.last_checkpoint.with_name("epoch_0001.pt")
    start = toy_sections(
        tmp_path, training={"num_epochs": 4}, checkpoint={"load_from_checkpoint": older}
    )
    result = run_training(data, start, "r2")
    assert result.record["best"] == former.record["best"]
    epochs = {read_checkpoint(each.best_checkpoint)["epoch"] for each in (former, result)}
    assert epochs == {former.record["best"]["epoch"]}


def test_resuming_can_be_declined(data, tmp_path):
    former = run_training(data, toy_sections(tmp_path), "r1")
    start = toy_sections(
        tmp_path,
        checkpoint={
            "load_from_checkpoint": former.last_checkpoint,
            "resume_from_checkpoint_epoch": False,
        },
    )
    assert run_training(data, start, "r2").metrics["epoch"].tolist() == [1, 2]


def test_a_missing_file_is_refused(data, tmp_path):
    wrong = toy_sections(tmp_path, checkpoint={"load_from_checkpoint": tmp_path / "no.pt"})
    with pytest.raises(CheckpointError, match=r"load_from_checkpoint: there is no file .*no\.pt"):
        run_training(data, wrong, "r1")
    assert not (tmp_path / "06_models").exists()


@pytest.mark.parametrize(
    ("class_map", "message"),
    [
        ({"plane": 1, "ship": 2, "tank": 3}, r"holds 2 classes, the class map 3\. Set checkpoint"),
        ({"ship": 1, "plane": 2}, r"its classes are plane, ship, those of the data ship, plane"),
    ],
    ids=["count", "order"],
)
def test_other_classes_are_refused_before_training(data, tmp_path, class_map, message):
    former = run_training(data, toy_sections(tmp_path), "r1")
    for resume in (True, False):
        start = toy_sections(
            tmp_path,
            checkpoint={
                "load_from_checkpoint": former.best_checkpoint,
                "resume_from_checkpoint_epoch": resume,
            },
        )
        with pytest.raises(CheckpointError, match=message):
            run_training(replace(data, class_map=class_map), start, "r2")
    assert not (tmp_path / "06_models" / "runs" / "r2").exists()


def test_a_folder_of_another_run_is_not_mixed_with(data, tmp_path):
    run_training(data, toy_sections(tmp_path), "r1")
    with pytest.raises(TrainingError, match="holds another run"):
        run_training(data, toy_sections(tmp_path), "r1")


def test_notebooks_get_a_folder_a_training(data, tmp_path):
    for _ in range(2):
        run_training(data, toy_sections(tmp_path, training={"num_epochs": 1}), "interactive")
    assert len(list((tmp_path / "06_models" / "runs").iterdir())) == 2


def test_a_run_in_progress_is_not_joined(data, tmp_path, built):
    interrupted(data, toy_sections(tmp_path), "r1", built)
    again = toy_sections(tmp_path, checkpoint={"discover_previous_run": True})
    with (
        run_lock(tmp_path / "06_models" / "runs" / "r1"),
        pytest.raises(TrainingError, match="another process is training in this folder"),
    ):
        run_training(data, again, "r2")
    assert not (tmp_path / "06_models" / "runs" / "r2").exists()


def test_a_failed_run_says_why(data, tmp_path):
    folder = tmp_path / "06_models" / "runs" / "r1"
    with pytest.raises(ConfigError):
        run_training(data, toy_sections(tmp_path, checkpoint={"best_metric": "f2"}), "r1")
    status = read_status(folder)
    assert status["state"] == "failed"
    assert "there is no metric 'f2'" in status["error"]


def test_hard_tiles_are_drawn_more_often_in_training_only(data, tmp_path):
    tile_ids = data.tile_index["tile_id"]
    scores = tmp_path / "scores.csv"
    scores.write_text("".join(["tile_id,f1\n", *(f"{name},1\n" for name in tile_ids[1:])]))
    with scores.open("a") as file:
        file.write(f"{tile_ids[0]},0\n")
    sections = toy_sections(
        tmp_path, dataset={"tile_metrics_csv": str(scores), "hard_tile_oversample_factor": 4}
    )
    weights = {}
    for split in ("train", "val"):
        _, loader = build_tiles(data, sections, split, "cpu")
        weights[split] = loader.batch_sampler.sampler.weights
    assert weights["train"].tolist() == [4, 1, 1, 1]
    assert weights["val"] is None
    assert len(run_training(data, sections, "r1").metrics) == 2


def test_few_tiles_are_a_warning_and_train_anyway(data, tmp_path, caplog):
    sections = toy_sections(tmp_path, data_loader={"batch_size": 16})
    assert len(run_training(data, sections, "r1").metrics) == 2
    assert "There are 4 training tiles, one optimizer step takes 16" in caplog.text


def test_without_validation_tiles_the_loss_decides(data, tmp_path, caplog):
    index = data.tile_index[data.tile_index["split"] == "train"]
    result = run_training(replace(data, tile_index=index), toy_sections(tmp_path), "r1")
    assert result.record["best"]["metric"] == "train/total_loss"
    assert not [name for name in result.metrics if name.startswith("val/")]
    assert "There are no validation tiles" in caplog.text


def test_results_are_read_back_as_they_were(data, tmp_path):
    result = run_training(data, toy_sections(tmp_path), "r1")
    again = load_result(result.last_checkpoint.parent)
    assert again.metrics.equals(result.metrics)
    assert list(again.metrics) == list(result.metrics)
    assert tuple(again.record["class_names"]) == CLASSES
