"""Time and memory of reading and checking DOTA labels, beside a plain loop over the same files.

``python benchmarks/reading.py`` writes 50,000 small images, no two alike, with 1,000,000 objects in
as many label files, and measures in a process each what reading them, reading and checking them,
and opening the files and splitting their lines takes. The limits are those of the figures table;
seconds count on idle cores only. Runs on Linux.
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

SIDE = 64  # px
VAL_EVERY = 10  # images
LIMIT_SECONDS, LIMIT_MEGABYTES = 90, 2000


class Took(NamedTuple):
    """What a step took, and the objects it gave."""

    seconds: float
    cpu_seconds: float
    megabytes: float  # largest resident memory of the process until its end
    objects: int


def draw_data(root: Path, objects: int, files: int) -> None:
    """Write images of noise in DOTA layout, with much the same number of rotated boxes each."""
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        for folder in ("images", "labelTxt"):
            (root / split / folder).mkdir(parents=True)
    for number in range(files):
        split = "val" if number % VAL_EVERY == 0 else "train"
        count = objects * (number + 1) // files - objects * number // files
        image = Image.frombytes("L", (SIDE, SIDE), rng.bytes(SIDE * SIDE))
        image.save(root / split / "images" / f"P{number}.png", compress_level=0)
        text = "".join(f"{box} small-vehicle 0\n" for box in _draw_boxes(rng, count))
        (root / split / "labelTxt" / f"P{number}.txt").write_text(f"gsd:0.5\n{text}")


def _draw_boxes(rng: np.random.Generator, count: int) -> list[str]:
    """Return the corners of boxes within an image, as label files hold them."""
    centre = rng.uniform(12, SIDE - 12, (count, 1, 2))
    w, h = rng.uniform(4, 8, (2, count))
    angle = rng.uniform(-math.pi / 2, math.pi / 2, count)
    along_w = np.stack([np.cos(angle) * w, np.sin(angle) * w], axis=1)[:, None]
    along_h = np.stack([-np.sin(angle) * h, np.cos(angle) * h], axis=1)[:, None]
    signs = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    corners = centre + signs[:, :1] * along_w / 2 + signs[:, 1:] * along_h / 2
    return [" ".join(f"{value:.1f}" for value in row) for row in corners.reshape(count, 8)]


def split_lines(root: Path) -> list[Took]:
    """Measure the least that any reader does: open each file, split each line."""

    def loop() -> int:
        n_lines = 0
        for path in sorted(root.glob("*/labelTxt/*.txt")):
            with path.open() as stream:
                for line in stream:
                    n_lines += len(line.split()) > 1
        return n_lines

    return [_measure(loop)]


def read_and_check(root: Path) -> list[Took]:
    """Measure reading, with headers and digests of all images, and then checking."""
    # Not at the top: the plain loop's memory is its own.
    from obbflow.config import DatasetSection
    from obbflow.data.checks import check_annotations
    from obbflow.data.formats import read_data_set

    dataset = DatasetSection(data_root=root)
    found = []

    def read() -> int:
        found.append(read_data_set(root, dataset, seed=0))
        return len(found[0].annotations)

    def check() -> int:
        (data,) = found
        kept, _ = check_annotations(data.images, data.annotations, data.issues, dataset)
        return len(kept)

    return [_measure(read), _measure(check)]


def _measure(step: Callable[[], int]) -> Took:
    start, cpu = time.perf_counter(), time.process_time()
    objects = step()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return Took(seconds, cpu, _peak_megabytes(), objects)


def _peak_megabytes() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024 / 1e6


def _alone(job: Callable[[Path], list[Took]], root: Path) -> list[Took]:
    """Return what a job measures in a process of its own, so that memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(job, root).result()


def main() -> int:
    """Measure, print a table, and return 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--quick", action="store_true", help="2,000 objects in 100 files")
    arguments = parser.parse_args()
    objects, files = (2000, 100) if arguments.quick else (arguments.objects, arguments.files)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        draw_data(root, objects, files)
        split_lines(root)  # so that all label files are in the system's cache
        (loop,) = _alone(split_lines, root)
        read, check = _alone(read_and_check, root)
    print(f"{objects:,} objects in {files:,} label files, each of an image of {SIDE} px\n")
    print(f"{'':28}{'seconds':>9}{'CPU s':>9}{'peak MB':>9}{'objects':>12}")
    for name, took in (("open and split lines", loop), ("read", read), ("check", check)):
        row = f"{took.seconds:9.2f}{took.cpu_seconds:9.2f}{took.megabytes:9.0f}"
        print(f"{name:28}{row}{took.objects:12,}")
    seconds, most = read.seconds + check.seconds, check.megabytes
    print(f"\nread and check: {seconds:.1f} s (limit {LIMIT_SECONDS}), ", end="")
    print(f"{most:.0f} MB (limit {LIMIT_MEGABYTES:,})")
    return int(seconds > LIMIT_SECONDS or most > LIMIT_MEGABYTES)


if __name__ == "__main__":
    sys.exit(main())
