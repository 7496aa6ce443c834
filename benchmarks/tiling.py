"""Speed and memory of tiling, beside a plain Pillow loop over the same images.

``python benchmarks/tiling.py`` draws scenes of 4,000 x 4,000 px with 1,600 objects, cuts them with
each setting in a process of its own (``num_workers`` 2) and prints Mpx of input a second, CPU
seconds, the peak memory of the process and of its workers, what a second run takes when nothing
changed, and how time grows with ten times the images. Runs on Linux.
"""

import argparse
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIDE = 4000
OBJECTS = 400  # a scene
TILE_SIZE, OVERLAP = 1024, 200
WORKERS = 2
_GROUND_PX = 8  # of the smooth ground below the noise


def draw_scene(path: Path, seed: int, noise: int) -> list[str]:
    """Write a scene and return its label lines: rectangles on smooth ground with sensor noise."""
    rng = np.random.default_rng(seed)
    small = rng.integers(40, 200, (SIDE // _GROUND_PX, SIDE // _GROUND_PX, 3), dtype=np.uint8)
    ground = Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    pixels = np.array(ground, dtype=np.int16)
    lines = []
    for x, y in rng.integers(0, SIDE - 60, (OBJECTS, 2)):
        w, h = rng.integers(10, 60, 2)
        pixels[y : y + h, x : x + w] = rng.integers(0, 256, 3)
        lines.append(f"{x} {y} {x + w} {y} {x + w} {y + h} {x} {y + h} ship 0")
    pixels += rng.integers(-noise, noise + 1, pixels.shape, dtype=np.int16)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, compress_level=1)
    return lines


def draw_data(root: Path, scenes: int, noise: int) -> None:
    """Write scenes in DOTA layout, all in train but the first, which is in val too."""
    for split in ("train", "val"):
        for folder in ("images", "labelTxt"):
            (root / split / folder).mkdir(parents=True, exist_ok=True)
    for number in range(scenes):
        split = "val" if number == 0 else "train"
        image = root / split / "images" / f"P{number}.png"
        lines = draw_scene(image, number, noise)
        (root / split / "labelTxt" / f"P{number}.txt").write_text("\n".join(lines) + "\n")


def copy_scenes(root: Path, target: Path, times: int) -> None:
    """Copy the scenes of a data set several times, by hard link."""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            folder = target / path.relative_to(root).parent
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(times):
                (folder / f"{path.stem}_{number}{path.suffix}").hardlink_to(path)


def tile(root: Path, store: Path, settings: dict[str, Any]) -> dict[str, float]:
    """Return seconds of a first run and of one that finds nothing changed, and peak memory."""
    # Not at the top: workers import this module again.
    from obbflow.config import DatasetSection, TilingSection
    from obbflow.data.checks import check_annotations
    from obbflow.data.formats import read_data_set
    from obbflow.data.tile_store import tile_data_set

    dataset = DatasetSection(data_root=root, overlap=OVERLAP)
    tiling = TilingSection(tile_size=TILE_SIZE, num_workers=WORKERS, **settings)
    data = read_data_set(root, dataset, seed=0)
    annotations, _ = check_annotations(data.images, data.annotations, data.issues, dataset)
    before = peak_megabytes("self")
    found = {}
    with watch_workers() as of_workers:
        for run in ("first", "second"):
            start, cpu = time.perf_counter(), cpu_seconds()
            tiled = tile_data_set(data.images, annotations, dataset, tiling, store)
            found[run], found[f"{run} CPU"] = time.perf_counter() - start, cpu_seconds() - cpu
    return {
        **found,
        "tiles": len(tiled.tile_index),
        "px": float((data.images["width"] * data.images["height"]).sum()),
        "added": peak_megabytes("self") - before,
        "worker": max(of_workers.values(), default=0.0),
        "written": sum(path.stat().st_size for path in store.rglob("*.*")) / 1e6,
    }


def cut_with_pillow(root: Path, store: Path, settings: dict[str, Any]) -> dict[str, float]:
    """Return what a plain loop takes that opens, crops and saves."""
    store.mkdir(parents=True)
    options: dict[str, Any] = {"png": {"compress_level": 1}, "jpg": {"quality": 95}}
    ending = settings["image_format"]
    starts = [*range(0, SIDE - TILE_SIZE, TILE_SIZE - OVERLAP), SIDE - TILE_SIZE]
    start, cpu, px = time.perf_counter(), cpu_seconds(), 0.0
    for path in sorted(root.rglob("*.png")):
        with Image.open(path) as image:
            px += image.width * image.height
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
    """Yield process id -> peak memory of the processes that this one starts meanwhile, MB."""
    peaks: dict[str, float] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            for task in Path("/proc/self/task").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                    for process in (task / "children").read_text(encoding="utf-8").split():
                        peaks[process] = max(peaks.get(process, 0.0), peak_megabytes(process))

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


def measure(label: str, function: Any, root: Path, settings: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Return a row of the table, measured in a process of its own."""
    with (
        scratch(root.parent) as folder,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
    ):
        found = pool.submit(function, root, folder / "store", settings).result()
    mpx = found["px"] / 1e6
    row = {"contender": label, "Mpx": mpx, "seconds": found["first"]}
    row |= {"Mpx/s": mpx / found["first"], "CPU s": found["first CPU"]}
    row |= {"Mpx/CPU s": mpx / found["first CPU"], "MB written": found["written"]}
    if "second" in found:
        row |= {"2nd run %": 100 * found["second"] / found["first"]}
        row |= {"MB added": found["added"], "MB a worker": found["worker"]}
    print(f"{label}: {found['first']:.1f} s", file=sys.stderr)
    return row


def main() -> None:
    """Print the table."""
    import pandas as pd

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two scenes, only to see that it runs")
    parser.add_argument("--noise", type=int, default=6, help="of the sensor, 0 to 30")
    parser.add_argument("--scaling", type=int, default=10, help="how many times the images")
    parser.add_argument("--folder", type=Path, help="for scenes and tiles; default: the system's")
    options = parser.parse_args()
    with scratch(options.folder) as folder:
        root = folder / "scenes"
        draw_data(root, 2 if options.quick else 4, options.noise)
        size = sum(path.stat().st_size for path in root.rglob("*.png"))
        rows = []
        for ending in ("jpg", "png"):
            rows.append(
                measure(f"plain Pillow, {ending}", cut_with_pillow, root, {"image_format": ending})
            )
            for kind in ("process", "thread", "serial"):
                settings = {"image_format": ending, "executor": kind}
                rows.append(measure(f"ours, {ending}, {kind}", tile, root, settings))
        if not options.quick:
            copy_scenes(root, folder / "more", options.scaling)
            more = {"image_format": "jpg", "executor": "process"}
            label = f"ours, jpg, process, {options.scaling} x the images"
            rows.append(measure(label, tile, folder / "more", more))
    table = pd.DataFrame(rows)
    of_plain = {ending: float(table.loc[row, "CPU s"]) for row, ending in ((0, "jpg"), (4, "png"))}
    table["CPU x plain"] = [
        row["CPU s"]
        / row["Mpx"]
        * table.loc[0, "Mpx"]
        / of_plain["png" if "png" in name else "jpg"]
        for name, (_, row) in zip(table["contender"], table.iterrows(), strict=True)
    ]
    bytes_a_px = size / (table.loc[0, "Mpx"] * 1e6)
    print(
        f"\nScenes of {SIDE} x {SIDE} px ({SIDE * SIDE * 3 / 1e6:.0f} MB decoded, "
        f"{bytes_a_px:.2f} bytes a px as PNG), tiles of {TILE_SIZE} px, overlap {OVERLAP}, "
        f"{WORKERS} workers\n"
    )
    print(table.to_string(index=False, float_format="{:.3g}".format, na_rep=""))


if __name__ == "__main__":
    main()
