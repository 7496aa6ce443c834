import random

import numpy as np
import torch

from obbflow.training.checkpoints import read_checkpoint, write_checkpoint
from obbflow.training.state import rng_state, seed_everything, set_rng_state


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(1))  # noqa: NPY002


def test_seed_and_epoch_fix_all_streams():
    seed_everything(1, 2)
    first = draw()
    draw()
    seed_everything(1, 2)
    assert draw() == first


def test_each_seed_and_epoch_has_a_stream_of_its_own():
    seen = set()
    for seed, epoch in [(0, 0), (0, 1), (1, 0), (1, 1), (11, 1), (1, 11)]:
        seed_everything(seed, epoch)
        seen |= set(draw())
    assert len(seen) == 18


def test_streams_continue_from_a_file(tmp_path):
    seed_everything(5, 1)
    draw()
    write_checkpoint({"epoch": 1, "rng": rng_state()}, tmp_path / "x.pt")
    expected = draw()
    seed_everything(6, 1)
    set_rng_state(read_checkpoint(tmp_path / "x.pt")["rng"])
    assert draw() == expected
