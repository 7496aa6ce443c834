import os

import pytest
import torch
from kedro.io import DatasetError, Version

from obbflow.datasets import CheckpointDataset


def dataset(tmp_path, save="2026-01-02T03.04.05.678Z", load=None):
    return CheckpointDataset(
        filepath=str(tmp_path / "catalog" / "best.pt"), version=Version(load, save)
    )


def test_a_file_of_the_run_becomes_a_version_without_a_second_copy(tmp_path):
    written = tmp_path / "run" / "best.pt"
    written.parent.mkdir()
    written.write_bytes(b"weights")

    dataset(tmp_path).save(written)

    promoted = dataset(tmp_path).load()
    assert promoted.relative_to(tmp_path).as_posix() == (
        "catalog/best.pt/2026-01-02T03.04.05.678Z/best.pt"
    )
    assert promoted.samefile(written)


def test_on_another_file_system_the_file_is_copied(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    written = tmp_path / "best.pt"
    written.write_bytes(b"weights")
    monkeypatch.setattr(os, "link", refuse)

    dataset(tmp_path).save(written)

    promoted = dataset(tmp_path).load()
    assert promoted.read_bytes() == b"weights"
    assert not promoted.samefile(written)


def test_replacing_the_file_of_the_run_does_not_change_the_version(tmp_path):
    written = tmp_path / "best.pt"
    written.write_bytes(b"weights")
    dataset(tmp_path).save(written)

    newer = tmp_path / "newer.pt"
    newer.write_bytes(b"others")
    newer.replace(written)

    assert dataset(tmp_path).load().read_bytes() == b"weights"


def test_a_state_is_written_so_that_it_loads_without_pickled_code(tmp_path):
    dataset(tmp_path).save({"epoch": 3, "model": {"w": torch.arange(3.0)}})

    state = torch.load(dataset(tmp_path).load(), weights_only=True)
    assert state["epoch"] == 3
    assert state["model"]["w"].tolist() == [0.0, 1.0, 2.0]


def test_a_state_that_cannot_be_written_leaves_no_file(tmp_path):
    with pytest.raises(DatasetError, match="pickle"):
        dataset(tmp_path).save({"model": lambda: None})

    assert not dataset(tmp_path).exists()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_newest_version_is_loaded_unless_one_is_named(tmp_path):
    for day, content in (("01", b"old"), ("02", b"new")):
        written = tmp_path / f"{day}.pt"
        written.write_bytes(content)
        dataset(tmp_path, save=f"2026-01-{day}T00.00.00.000Z").save(written)

    assert dataset(tmp_path, save=None).load().read_bytes() == b"new"
    pinned = dataset(tmp_path, save=None, load="2026-01-01T00.00.00.000Z")
    assert pinned.load().read_bytes() == b"old"


def test_without_any_version_nothing_exists_and_loading_says_so(tmp_path):
    assert not dataset(tmp_path).exists()
    with pytest.raises(DatasetError, match="Did not find any versions"):
        dataset(tmp_path).load()


def test_a_missing_plain_file_is_named(tmp_path):
    plain = CheckpointDataset(filepath=str(tmp_path / "best.pt"))

    with pytest.raises(DatasetError, match=r"best\.pt: there is no such checkpoint"):
        plain.load()


def test_a_missing_source_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"nowhere\.pt"):
        dataset(tmp_path).save(tmp_path / "nowhere.pt")
    assert not dataset(tmp_path).exists()
