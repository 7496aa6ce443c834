"""A tiling run that is killed goes on, and gives what an undisturbed one gives."""

import multiprocessing
import os
import random
import shutil
import signal
import time

import pandas as pd
import pytest

from obbflow.data.tile_manifest import JOURNAL, read_manifest
from scenes import cut_scenes, write_scene
from tiling_run import cut_in_a_group

KILLS = 20
KINDS = (1, 1, 1, 2)  # number of processes of one run after the other; 1: without workers
WORKERS = (1, 2)


def contents(store):
    return {
        path.relative_to(store): path.read_bytes() for path in store.rglob("*") if path.is_file()
    }


def count_finished(store, whole):
    """Return how many images of the manifest ``whole`` the store already has as they are there."""
    manifest = read_manifest(store)
    return sum(manifest.get(image_id) == entry for image_id, entry in whole.items())


def tables(tiled, store):
    names = tiled.tile_index["path"].str.removeprefix(str(store))
    return tiled.tile_index.assign(path=names), tiled.tile_annotations


@pytest.fixture(scope="module")
def start():
    """Return a function that starts a tiling run in a process of its own, and waits for it."""
    # Forked from a process that has made the imports and nothing else: quick, and safe with torch.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "obbflow.data.tile_store", "obbflow.data.checks"])

    def start(root, store, num_workers):
        begins = context.Event()
        run = context.Process(target=cut_in_a_group, args=(root, store, num_workers, begins))
        run.start()
        assert begins.wait(60)
        return run

    return start


def measure(start, *arguments):
    """Return the seconds of a run that nobody disturbs."""
    run, began = start(*arguments), time.perf_counter()
    run.join()
    assert run.exitcode == 0
    return time.perf_counter() - began


def wait_for_workers(group):
    """Wait until no process of a group is left."""
    latest = time.monotonic() + 20
    while time.monotonic() < latest:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError("a worker outlived the run that started it")


def test_a_run_that_is_killed_again_and_again_gives_the_same_bytes(tmp_path, start):
    root, earlier, store = (tmp_path / name for name in ("raw", "earlier", "store"))
    for number in range(16):
        write_scene(root / "train", f"P{number}", size=(170, 160))
    write_scene(root / "val", "P0", size=(64, 64))
    undisturbed = cut_scenes(root, tmp_path / "undisturbed")
    expected, whole = contents(tmp_path / "undisturbed"), read_manifest(tmp_path / "undisturbed")
    cut_scenes(root, earlier, overlap=8)  # a run ends with the removal of such tiles
    seconds = {
        workers: measure(start, root, tmp_path / f"of {workers}", workers) for workers in WORKERS
    }
    chance = random.Random(0)
    finished = []  # whole images in the store at each kill
    while len(finished) < KILLS:
        if not store.exists():
            shutil.copytree(earlier, store)
        before = count_finished(store, whole)
        workers = KINDS[len(finished) % len(KINDS)]
        run, moment = start(root, store, workers), chance.uniform(0, seconds[workers])
        time.sleep(moment)
        run.kill()
        run.join()
        wait_for_workers(run.pid)
        if run.exitcode == 0:
            assert contents(store) == expected
            shutil.rmtree(store)
            if before == 0:
                seconds[workers] = moment  # a whole run takes no longer
            continue
        assert run.exitcode == -signal.SIGKILL
        finished.append(count_finished(store, whole))
        assert finished[-1] >= before
    tiled = cut_scenes(root, store)
    assert tiled.report.n_unchanged == finished[-1]
    assert contents(store) == expected
    for table, other in zip(
        tables(tiled, store), tables(undisturbed, tmp_path / "undisturbed"), strict=True
    ):
        pd.testing.assert_frame_equal(table, other)
    assert len(set(finished)) > 2  # the kills fell into different parts of the work


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
