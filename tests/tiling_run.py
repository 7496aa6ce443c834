"""A tiling run in a process of its own, to be killed."""

import os
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import torch

from obbflow.data import tile_store
from scenes import cut_scenes


def cut_in_a_group(root: Path, store: Path, num_workers: int, begins: Event) -> None:
    """Cut the scenes below ``root`` and say when that begins: with workers, when one has cut.

    The process group of this process holds all its workers.
    """
    os.setsid()
    torch.set_num_threads(1)  # quicker for so little
    tile_store._SMALL_WORK_PX = 0  # else processes are for more work than this
    name = "read_manifest" if num_workers == 1 else "note_image"
    function = getattr(tile_store, name)

    def begin(*arguments: Any) -> Any:
        begins.set()
        return function(*arguments)

    setattr(tile_store, name, begin)
    cut_scenes(root, store, num_workers=num_workers)
    begins.set()  # there was nothing to cut
