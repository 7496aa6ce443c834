import errno
import random

import pytest
import torch

from obbflow.errors import CheckpointError, TrainingError
from obbflow.models.checkpoint_file import content_checksum
from obbflow.training import checkpoints
from obbflow.training.checkpoints import (
    CheckpointManager,
    peek_checkpoint,
    read_checkpoint,
    write_checkpoint,
)


def content(epoch: int, value: float = 1.0) -> dict:
    return {
        "epoch": epoch,
        "model": {"weight": torch.full((50, 10), value), "steps": torch.tensor(epoch)},
        "rng": random.getstate(),
        "class_map": {"ship": 1},
        "none": None,
    }


def test_a_checkpoint_comes_back_as_written(tmp_path):
    path = tmp_path / "new" / "x.pt"
    write_checkpoint(content(3), path)
    loaded = read_checkpoint(path)
    assert torch.equal(loaded["model"]["weight"], torch.full((50, 10), 1.0))
    assert loaded["rng"] == random.getstate()
    assert (loaded["epoch"], loaded["class_map"], loaded["none"]) == (3, {"ship": 1}, None)
    assert [entry.name for entry in path.parent.iterdir()] == ["x.pt"]


def test_the_newest_epochs_are_kept_and_last_is_the_newest(tmp_path):
    manager = CheckpointManager(tmp_path, keep_last_n=2)
    for epoch in (1, 2, 3, 10):
        manager.save(content(epoch))
    assert [path.name for path in manager.epoch_files()] == ["epoch_0003.pt", "epoch_0010.pt"]
    assert manager.load()["epoch"] == 10
    assert manager.latest == tmp_path / "last.pt"


def test_the_best_file_is_never_cleaned_up(tmp_path):
    manager = CheckpointManager(tmp_path, keep_last_n=1)
    assert manager.best is None
    manager.save_best(content(1))
    for epoch in (1, 2, 3):
        manager.save(content(epoch))
    assert manager.load(manager.best)["epoch"] == 1


def test_a_run_without_a_checkpoint_says_so(tmp_path):
    with pytest.raises(CheckpointError, match=r"holds no last\.pt"):
        CheckpointManager(tmp_path).load()


def test_damage_anywhere_is_noticed_or_harmless(tmp_path):
    path = tmp_path / "x.pt"
    write_checkpoint(content(3), path)
    intact, whole = path.read_bytes(), read_checkpoint(path)
    noticed = 0
    for where in range(0, len(intact) - 8, len(intact) // 50):
        damaged = bytes(byte ^ 0xFF for byte in intact[where : where + 8])
        path.write_bytes(intact[:where] + damaged + intact[where + 8 :])
        try:
            loaded = read_checkpoint(path)
        except CheckpointError as error:
            noticed += "x.pt: the file is damaged" in str(error)
        else:  # the padding between the records of the archive
            assert torch.equal(loaded["model"]["weight"], whole["model"]["weight"])
            assert loaded["rng"] == whole["rng"]
    assert noticed > 30


def test_one_flipped_bit_in_a_weight_is_noticed(tmp_path):
    path = tmp_path / "x.pt"
    write_checkpoint(content(3, value=7.0), path)
    data = path.read_bytes()
    pattern = torch.full((4,), 7.0).numpy().tobytes()
    where = data.index(pattern) + 40
    path.write_bytes(data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :])
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(path)


def test_a_cut_file_is_noticed(tmp_path):
    path = tmp_path / "x.pt"
    write_checkpoint(content(3), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"x\.pt: the file is damaged"):
        read_checkpoint(path)


def test_other_files_are_refused_with_a_reason(tmp_path):
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        read_checkpoint(tmp_path / "missing.pt")
    foreign = tmp_path / "foreign.pt"
    torch.save({"state_dict": {}}, foreign)
    with pytest.raises(CheckpointError, match=r"checkpoint\.load_from_checkpoint"):
        read_checkpoint(foreign)
    assert peek_checkpoint(foreign) is None


def test_peeking_reads_the_plain_values(tmp_path):
    path = tmp_path / "x.pt"
    write_checkpoint(content(3), path)
    assert peek_checkpoint(path)["class_map"] == {"ship": 1}


class FullDisk:
    """Lets a file take so many bytes, as a full disk does."""

    def __init__(self, stream, room: int) -> None:
        self.stream, self.room = stream, room

    def write(self, data) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.stream.write(data)

    def flush(self) -> None:
        self.stream.flush()


def test_a_full_disk_names_the_bytes_and_keeps_the_former_file(tmp_path, monkeypatch):
    manager = CheckpointManager(tmp_path)
    manager.save_best(content(1))
    save = torch.save
    monkeypatch.setattr(torch, "save", lambda data, stream: save(data, FullDisk(stream, 1000)))
    with pytest.raises(TrainingError, match=r"best\.pt: the disk is full.* needs 2,\d{3} bytes"):
        manager.save_best({**content(2), "rng": None})
    monkeypatch.undo()
    assert manager.load(manager.best)["epoch"] == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["best.pt"]


def test_a_passing_fault_of_the_disk_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "_FIRST_WAIT", 0.0)
    failures = iter([OSError(errno.EIO, "stale handle")] * 2)
    write = checkpoints._write_through

    def flaky(payload, path) -> None:
        error = next(failures, None)
        if error is not None:
            raise error
        write(payload, path)

    monkeypatch.setattr(checkpoints, "_write_through", flaky)
    write_checkpoint(content(1), tmp_path / "x.pt")
    assert read_checkpoint(tmp_path / "x.pt")["epoch"] == 1


def test_the_third_failure_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "_FIRST_WAIT", 0.0)
    calls = []

    def broken(*arguments) -> None:
        calls.append(arguments)
        raise OSError(errno.EIO, "stale handle")

    monkeypatch.setattr(checkpoints, "_write_through", broken)
    with pytest.raises(TrainingError, match="3 attempts failed"):
        write_checkpoint(content(1), tmp_path / "x.pt")
    assert len(calls) == 3


@pytest.mark.parametrize("value", [torch.__version__, object(), {1, 2}], ids=type)
def test_what_could_not_be_read_back_is_refused(tmp_path, value):
    with pytest.raises(TypeError, match="holds tensors and plain values, got a"):
        write_checkpoint({"epoch": 1, "value": [value]}, tmp_path / "x.pt")
    assert not list(tmp_path.iterdir())


def test_the_checksum_depends_on_names_types_shapes_and_values():
    base = {"a": torch.zeros(4), "n": 1}
    others = [
        {"b": torch.zeros(4), "n": 1},
        {"a": torch.zeros(2, 2), "n": 1},
        {"a": torch.zeros(4, dtype=torch.int32), "n": 1},
        {"a": torch.tensor([0.0, 0.0, 0.0, 1e-38]), "n": 1},
        {"a": torch.zeros(4), "n": 1.0},
    ]
    assert content_checksum(base) == content_checksum({"a": torch.zeros(4), "n": 1})
    assert len({content_checksum(each) for each in [base, *others]}) == 6


def test_memory_layout_does_not_change_the_checksum(tmp_path):
    weight = torch.rand(4, 3, 2, 2).to(memory_format=torch.channels_last)
    write_checkpoint({"epoch": 1, "weight": weight}, tmp_path / "x.pt")
    assert torch.equal(read_checkpoint(tmp_path / "x.pt")["weight"], weight)


def test_half_written_files_of_a_killed_run_are_removed(tmp_path):
    manager = CheckpointManager(tmp_path)
    manager.save(content(1))
    (tmp_path / ".epoch_0002.pt.4711").write_bytes(b"half")
    manager.remove_scratch()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["epoch_0001.pt", "last.pt"]
