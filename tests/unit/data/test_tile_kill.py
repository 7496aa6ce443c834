"""A tiling run that is killed goes on, and gives what an undisturbed one gives."""

import multiprocessing
import random
import signal
import time

import pytest

from obbflow.data.tile_manifest import JOURNAL, read_manifest
from scenes import cut_scenes, write_scene
from slow_tiling import cut_slowly


def contents(store):
    return {
        path.relative_to(store): path.read_bytes() for path in store.rglob("*") if path.is_file()
    }


def test_a_killed_run_goes_on_and_gives_the_same_bytes(tmp_path):
    root = tmp_path / "raw"
    for number in range(12):
        write_scene(root / "train", f"P{number}", size=(140, 100))
    write_scene(root / "val", "P0", size=(64, 64))
    cut_scenes(root, tmp_path / "undisturbed")
    store = tmp_path / "store"
    chance = random.Random(0)
    finished = []
    # Forked from a process that has made the imports and nothing else: quick, and safe with torch.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["obbflow.data.tile_store", "obbflow.data.formats"])
    for _ in range(3):
        begins = context.Event()
        run = context.Process(target=cut_slowly, args=(root, store, begins))
        run.start()
        assert begins.wait(60)
        time.sleep(chance.uniform(0.05, 0.15))
        run.kill()
        run.join()
        assert run.exitcode == -signal.SIGKILL
        finished.append(len(read_manifest(store)))
    assert finished[-1] > 0
    assert finished == sorted(finished)
    tiled = cut_scenes(root, store)
    assert tiled.report.n_unchanged == finished[-1]
    assert contents(store) == contents(tmp_path / "undisturbed")


@pytest.mark.parametrize("rest", ["", '[2, "train/P', "\x00\xff"])
def test_a_line_that_was_not_finished_is_left_out(tmp_path, rest):
    write_scene(tmp_path / "raw" / "train", "P1")
    write_scene(tmp_path / "raw" / "val", "P1")
    store = tmp_path / "store"
    cut_scenes(tmp_path / "raw", store)
    (store / JOURNAL).write_text('\n[2, "val/P2", {"digest": "1", "tiles": {}}]\n' + rest)
    assert set(read_manifest(store)) == {"train/P1", "val/P1", "val/P2"}
    assert cut_scenes(tmp_path / "raw", store).report.n_unchanged == 2
    assert not (store / JOURNAL).exists()
