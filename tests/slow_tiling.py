"""A tiling run in a process of its own, slow enough to be killed in between."""

import time
from multiprocessing.synchronize import Event
from pathlib import Path

from obbflow.data import tile_store
from obbflow.data.tile_pixels import PixelJob, PixelResult
from obbflow.errors import DataError
from scenes import cut_scenes

_cut = tile_store.cut_or_explain


def cut_slowly(root: Path, store: Path, begins: Event) -> None:
    """Cut the scenes below ``root``, with a pause before each; say when one is done."""
    cut = []

    def pause_and_cut(job: PixelJob) -> PixelResult | DataError:
        if cut:
            begins.set()
        cut.append(job.image_id)
        time.sleep(0.03)
        return _cut(job)

    tile_store.cut_or_explain = pause_and_cut
    cut_scenes(root, store)
