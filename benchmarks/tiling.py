"""Speed and memory of tiling, beside a plain Pillow loop over the same images.

``python benchmarks/tiling.py`` draws four scenes of 4,000 x 4,000 px with 400 objects each and
cuts them with each setting in a process of its own (``num_workers`` 2): seconds, CPU seconds, and
what a second run takes when nothing changed. Memory is measured in other runs, as looking at it
takes time. Then come ten times the images, images of 12,000 x 12,000 px and, with ``--giant``, a
TIFF of 30,000 x 30,000 px. Runs on Linux.
"""

import argparse
import math
import resource
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from PIL import Image

from tiling_scenes import copy_scenes, draw_data, draw_giant, draw_large

TILE_SIZE, OVERLAP = 1024, 200
WORKERS = 2
RUNS = 5  # of which the median is taken
REPEATS = 3  # sides of a scene in the side of a large image
GIANT_SIDE = 30_000
SECONDS_BETWEEN_LOOKS = 0.02


def tile(root: Path, store: Path, settings: dict[str, Any]) -> dict[str, float]:
    """Return seconds of a first run, and of one that finds nothing changed."""
    # Not at the top: workers import this module again.
    from obbflow.config import DatasetSection, TilingSection
    from obbflow.data.checks import check_annotations
    from obbflow.data.formats import read_data_set
    from obbflow.data.tile_store import tile_data_set

    dataset = DatasetSection(data_root=root, overlap=OVERLAP)
    tiling = TilingSection(tile_size=TILE_SIZE, num_workers=WORKERS, **settings)
    data = read_data_set(root, dataset, seed=0)
    annotations, _ = check_annotations(data.images, data.annotations, data.issues, dataset)
    found = {}
    for run in ("first", "second"):
        start, cpu = time.perf_counter(), cpu_seconds()
        tiled = tile_data_set(data.images, annotations, dataset, tiling, store)
        found[run], found[f"{run} CPU"] = time.perf_counter() - start, cpu_seconds() - cpu
    return {
        **found,
        "tiles": len(tiled.tile_index),
        "px": float((data.images["width"] * data.images["height"]).sum()),
        "image MB": float((data.images["width"] * data.images["height"]).max()) * 3 / 1e6,
        "written": sum(path.stat().st_size for path in store.rglob("*.*")) / 1e6,
    }


def tile_watched(root: Path, store: Path, settings: dict[str, Any]) -> dict[str, float]:
    """Return what ``tile`` does, slowed down by a look at the memory of all processes."""
    with watch_workers() as of_workers:
        found = tile(root, store, settings)
    main = peak_megabytes("self")
    # One image alone is cut by the main process.
    largest = max(of_workers.values(), default=math.nan)
    return {**found, "main": main, "worker": largest, "all": main + sum(of_workers.values())}


def cut_with_pillow(root: Path, store: Path, settings: dict[str, Any]) -> dict[str, float]:
    """Return what a plain loop takes that opens, crops and saves."""
    store.mkdir(parents=True)
    options: dict[str, Any] = {"png": {"compress_level": 1}, "jpg": {"quality": 95}}
    ending = settings["image_format"]
    start, cpu, px = time.perf_counter(), cpu_seconds(), 0.0
    for path in sorted(root.rglob("*.png")):
        with Image.open(path) as image:
            px += image.width * image.height
            last = image.width - TILE_SIZE
            starts = [*range(0, last, TILE_SIZE - OVERLAP), last]
            for y in starts:
                for x in starts:
                    part = image.crop((x, y, x + TILE_SIZE, y + TILE_SIZE))
                    part.save(store / f"{path.stem}_{x}_{y}.{ending}", **options[ending])
    return {
        "first": time.perf_counter() - start,
        "first CPU": cpu_seconds() - cpu,
        "px": px,
        "written": sum(path.stat().st_size for path in store.iterdir()) / 1e6,
    }


def idle_megabytes() -> float:
    """Return the memory of a worker that has made its imports and cut nothing."""
    import rasterio  # noqa: F401

    from obbflow.data import tile_pixels  # noqa: F401

    return peak_megabytes("self")


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    of_both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in of_both)


def peak_megabytes(process: str) -> float:
    """Return the largest resident memory of a process so far; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(found[0]) * 1024 / 1e6 if found else 0.0


@contextmanager
def watch_workers() -> Iterator[dict[str, float]]:
    """Yield process id -> peak memory of the workers that this process starts meanwhile, MB."""
    peaks: dict[str, float] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(SECONDS_BETWEEN_LOOKS):
            for task in Path("/proc/self/task").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                    for process in (task / "children").read_text(encoding="utf-8").split():
                        if b"spawn_main" in Path(f"/proc/{process}/cmdline").read_bytes():
                            # The last one counts: a new process first shows its parent's.
                            peaks[process] = peak_megabytes(process) or peaks.get(process, 0.0)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield peaks
    finally:
        over.set()
        watcher.join()


@contextmanager
def scratch(folder: Path | None) -> Iterator[Path]:
    """Yield an empty folder that is removed at the end."""
    path = Path(tempfile.mkdtemp(dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def apart(function: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
    """Return what a function returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measure_speed(
    label: str,
    function: Callable[..., Any],
    root: Path,
    settings: dict[str, Any],
    runs: int = RUNS,
) -> dict[str, Any]:
    """Return a row of the table of speeds: medians of some runs, each in an empty folder."""
    measured = []
    for _ in range(runs):
        with scratch(root.parent) as folder:
            measured.append(apart(function, root, folder / "store", settings))
    found = {key: statistics.median(each[key] for each in measured) for key in measured[0]}
    mpx = found["px"] / 1e6
    row = {"contender": label, "Mpx": mpx, "seconds": found["first"]}
    row |= {"Mpx/s": mpx / found["first"], "CPU s": found["first CPU"]}
    row |= {"Mpx/CPU s": mpx / found["first CPU"], "MB written": found["written"]}
    if "second" in found:
        row |= {"2nd run %": 100 * found["second"] / found["first"]}
    print(f"{label}: {found['first']:.1f} s", file=sys.stderr)
    return row


def measure_memory(label: str, root: Path, settings: dict[str, Any], idle: float) -> dict[str, Any]:
    """Return a row of the table of memory; ``idle`` is the memory of an idle worker, MB."""
    with scratch(root.parent) as folder:
        found = apart(tile_watched, root, folder / "store", settings)
    image = found["image MB"]
    print(f"{label}, memory: {found['first']:.1f} s", file=sys.stderr)
    return {
        "contender": label,
        "largest image": image,
        "main process": found["main"],
        "largest worker": found["worker"],
        "all processes": found["all"],
        "worker / image": found["worker"] / image,
        "its work / image": (found["worker"] - idle) / image,
        "seconds": found["first"],
    }


def show(title: str, rows: Iterable[dict[str, Any]]) -> None:
    """Print a table."""
    import pandas as pd

    table = pd.DataFrame(rows).to_string(index=False, float_format="{:.3g}".format, na_rep="")
    print(f"\n{title}\n\n{table}")


def run_all(folder: Path, options: argparse.Namespace) -> None:
    """Measure everything and print the tables."""
    from measuring import Target, describe_machine, judge  # not at the top, as above

    print(describe_machine(WORKERS))
    # Less than that would be cut without workers.
    side, repeats = (3200, 1) if options.quick else (4000, REPEATS)
    root = folder / "scenes"
    draw_data(root, 2 if options.quick else 4, side, options.noise)
    jpg, png = ({"image_format": ending, "executor": "process"} for ending in ("jpg", "png"))
    runs = 1 if options.quick else RUNS
    speeds = {}
    for kind in (jpg, png):
        ending = kind["image_format"]
        label = f"plain Pillow, {ending}"
        speeds[label] = measure_speed(label, cut_with_pillow, root, kind, runs=1)
        for executor in ("process",) if options.quick else ("process", "thread", "serial"):
            label = f"ours, {ending}, {executor}"
            speeds[label] = measure_speed(label, tile, root, kind | {"executor": executor}, runs)
    targets = [
        Target("Mpx/s, JPEG tiles", speeds["ours, jpg, process"]["Mpx/s"], at_least=40),
        Target("Mpx/s, PNG tiles", speeds["ours, png, process"]["Mpx/s"], at_least=20),
        Target("2nd run %, JPEG tiles", speeds["ours, jpg, process"]["2nd run %"], at_most=2),
        Target("2nd run %, PNG tiles", speeds["ours, png, process"]["2nd run %"], at_most=2),
    ]
    if not options.quick:
        label = f"ours, jpg, process, {options.scaling} x the images"
        copy_scenes(root, folder / "more", options.scaling)
        speeds[label] = measure_speed(label, tile, folder / "more", jpg, runs=1)
        growth = speeds[label]["seconds"] / speeds["ours, jpg, process"]["seconds"]
        what = f"times the seconds, {options.scaling} x the images"
        targets.append(Target(what, growth, at_most=options.scaling))

    idle = apart(idle_megabytes)
    draw_large(folder / "large", side, repeats, options.noise)
    memory = [
        measure_memory("scenes, jpg", root, jpg, idle),
        measure_memory("scenes, png", root, png, idle),
        measure_memory("large PNG, png", folder / "large", png, idle),
    ]
    targets.append(
        Target("largest worker / largest image", memory[-1]["worker / image"], at_most=2.5)
    )
    if options.giant:
        giant = 4000 if options.quick else GIANT_SIDE
        draw_giant(folder / "giant", giant, options.noise)
        memory.append(measure_memory("giant TIFF, jpg", folder / "giant", jpg, idle))
        targets.append(
            Target("MB of all processes, giant TIFF", memory[-1]["all processes"], at_most=1500)
        )
    show(f"Speed: {side} x {side} px, tiles of {TILE_SIZE}, overlap {OVERLAP}", speeds.values())
    show(f"Memory, MB; an idle worker has {idle:.0f}", memory)
    print(f"\nFigures and limits\n\n{judge(targets).to_string(index=False)}")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, only to see that it runs")
    parser.add_argument("--giant", action="store_true", help="a TIFF of 30,000 x 30,000 px too")
    parser.add_argument("--noise", type=int, default=6, help="of the sensor, 0 to 30")
    parser.add_argument("--scaling", type=int, default=10, help="how many times the images")
    parser.add_argument("--folder", type=Path, help="for scenes and tiles; default: the system's")
    options = parser.parse_args()
    with scratch(options.folder) as folder:
        run_all(folder, options)


if __name__ == "__main__":
    main()
