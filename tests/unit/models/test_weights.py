import os
import pickle

import pytest
import torch
from torch import nn

from obbflow.errors import CheckpointError
from obbflow.models import load_checkpoint
from obbflow.models.checkpoint_file import FORMAT, content_checksum


class Small(nn.Module):
    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Linear(4, 5)
        self.head = nn.Linear(5, classes)


class RunsCode:
    """Unpickling this calls a function."""

    def __reduce__(self):
        return os.getcwd, ()


NAMES = ("body.weight", "body.bias", "head.weight", "head.bias")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.pt"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"model": state, "epoch": 3},
        lambda state: {"state_dict": state, "meta": {"classes": ["a"]}},
        lambda state: {"model_state_dict": state},
        lambda state: {"model": {f"module.{name}": value for name, value in state.items()}},
    ],
    ids=["bare", "model", "state_dict", "model_state_dict", "module. prefix"],
)
def test_weights_are_found_wherever_a_checkpoint_keeps_them(path, wrap):
    source, model = Small(), Small()
    torch.save(wrap(source.state_dict()), path)
    report = load_checkpoint(path, model, strict=True)
    assert report.loaded == NAMES
    assert report.missing == report.unexpected == report.mismatched == ()
    for name, value in model.state_dict().items():
        assert torch.equal(value, source.state_dict()[name])


def test_what_does_not_fit_is_reported_and_left_as_it_was(path):
    source, model = Small(classes=7), Small()
    state = {**source.state_dict(), "extra": torch.zeros(2)}
    del state["body.bias"]
    torch.save(state, path)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = load_checkpoint(path, model)
    assert report.loaded == ("body.weight",)
    assert report.missing == ("body.bias",)
    assert report.unexpected == ("extra",)
    assert report.mismatched == ("head.weight (7, 5), here (3, 5)", "head.bias (7,), here (3,)")
    assert torch.equal(model.body.weight, source.body.weight)
    for name in ("body.bias", "head.weight", "head.bias"):
        assert torch.equal(model.state_dict()[name], before[name])
    assert "1 tensors loaded" in str(report)
    assert "2 mismatched: head.weight (7, 5), here (3, 5)" in str(report)


def test_strict_refuses_a_partial_fit_and_leaves_the_model(path):
    model = Small()
    before = model.body.weight.clone()
    torch.save(Small(classes=7).state_dict(), path)
    with pytest.raises(CheckpointError, match=r"(?s)head\.weight \(7, 5\).*agree in every tensor"):
        load_checkpoint(path, model, strict=True)
    assert torch.equal(model.body.weight, before)


def test_prefixes_choose_what_is_loaded(path):
    source = Small()
    torch.save(source.state_dict(), path)
    assert load_checkpoint(path, Small(), include_prefixes=["body."]).loaded == NAMES[:2]
    report = load_checkpoint(path, Small(), exclude_prefixes=["head.", "body.bias"])
    assert report.loaded == NAMES[:1]
    assert report.missing == NAMES[1:]


@pytest.mark.parametrize("in_file", ["", "module."])
@pytest.mark.parametrize("in_prefix", ["", "module."])
def test_prefixes_may_be_written_as_in_the_file(path, in_file, in_prefix):
    torch.save({in_file + name: value for name, value in Small().state_dict().items()}, path)
    included = load_checkpoint(path, Small(), include_prefixes=[f"{in_prefix}body."])
    excluded = load_checkpoint(path, Small(), exclude_prefixes=[f"{in_prefix}head."])
    assert included.loaded == excluded.loaded == NAMES[:2]


def test_a_flipped_bit_in_a_checkpoint_of_ours_is_noticed(path):
    source = Small()
    nn.init.constant_(source.body.weight, 7.0)
    content = {"format": FORMAT, "model": source.state_dict()}
    torch.save({**content, "checksum": content_checksum(content)}, path)
    load_checkpoint(path, Small(), strict=True)
    data = path.read_bytes()
    where = data.index(torch.full((4,), 7.0).numpy().tobytes()) + 20
    path.write_bytes(data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :])
    with pytest.raises(CheckpointError, match=r"weights\.pt: the file is damaged"):
        load_checkpoint(path, Small())


def test_a_file_of_which_nothing_fits_is_refused(path):
    torch.save({"other.weight": torch.zeros(3)}, path)
    with pytest.raises(CheckpointError, match=r"(?s)weights\.pt.*Nothing in this file fits"):
        load_checkpoint(path, Small())


def test_a_file_that_could_run_code_is_refused(path):
    torch.save({"model": Small().state_dict(), "hook": RunsCode()}, path)
    with pytest.raises(CheckpointError, match="reading it could run code"):
        load_checkpoint(path, Small())


@pytest.mark.parametrize("kept", [0, 10, 400, 0.9])
def test_a_truncated_file_is_refused(path, kept):
    torch.save(Small().state_dict(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    with pytest.raises(CheckpointError, match=r"weights\.pt: "):
        load_checkpoint(path, Small())


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_file_of_another_kind_is_refused_whatever_its_bytes(path):
    # torch takes the first byte of an unknown file for an instruction.
    contents = [bytes([first]) + b"hese are no weights" for first in range(256)]
    for content in [*contents, pickle.dumps([1, 2])]:
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"weights\.pt: "):
            load_checkpoint(path, Small())


@pytest.mark.parametrize("content", [{"epoch": 3}, [torch.zeros(2)]], ids=["no tensors", "a list"])
def test_a_checkpoint_without_tensors_by_name_is_refused(path, content):
    torch.save(content, path)
    with pytest.raises(CheckpointError, match=r"weights\.pt: holds"):
        load_checkpoint(path, Small())


def test_a_missing_file_is_named(path):
    with pytest.raises(CheckpointError, match=r"weights\.pt: no such checkpoint file"):
        load_checkpoint(path, Small())
