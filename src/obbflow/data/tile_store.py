"""The folder with the tile files, and the record of what each was cut from.

A file's name ends in the first letters of a digest of all that it depends on, so tiles of other
settings never take the place of those that an earlier ``tile_index`` names: an interrupted run
leaves both usable. ``manifest.json`` says which files belong to which digest; it is replaced as a
whole. Files that belong to no image any more are removed last, unless they are still in use.
"""

import hashlib
import io
import json
import logging
import multiprocessing
import os
from collections.abc import Collection, Hashable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from obbflow.config import DatasetSection, TilingSection
from obbflow.data.images import undecodable_images
from obbflow.data.progress import track
from obbflow.data.tile_pixels import PixelJob, PixelResult, cut_or_explain
from obbflow.data.tile_tables import plan_tiles
from obbflow.errors import DataError
from obbflow.tables import CORNERS

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
"""To be raised when tiles are cut in another way, so that all are cut again."""

_SMALL_WORK_PX = 20_000_000  # starting processes takes longer than cutting this
_JOBS_A_WORKER = 2  # waiting or at work at once: bounds memory
_MANY = 10

Manifest = dict[str, dict[str, Any]]
"""image_id -> {"digest": of all that its tiles depend on, "sha256": of the image file, which could
be decoded, "tiles": {file below the store: its bytes}}."""


@dataclass(frozen=True)
class TilingReport:
    """Numbers of one run: all images and tiles, images cut and left as they were, files removed."""

    n_images: int
    n_tiles: int
    n_cut: int
    n_unchanged: int
    n_removed: int


@dataclass(frozen=True)
class TiledData:
    """Tables ``tile_index`` and ``tile_annotations``, and what was done for them."""

    tile_index: pd.DataFrame
    tile_annotations: pd.DataFrame
    report: TilingReport


def tile_data_set(
    images: pd.DataFrame,
    annotations: pd.DataFrame,
    dataset: DatasetSection,
    tiling: TilingSection,
    store: Path,
    *,
    in_use: Collection[str] = (),
) -> TiledData:
    """Cut all images into tiles, again only where an image, its labels or a setting changed.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations``.
        dataset: Section ``dataset``; ``overlap`` counts here.
        tiling: Section ``tiling``.
        store: Folder of the tile files; made when missing. It holds nothing else.
        in_use: Tile files that are kept although no image has them any more: an earlier
            ``tile_index`` names them until the new one is written. The next call removes them.

    Returns:
        The tables and numbers.

    Raises:
        DataError: If images cannot be decoded; all of them are named, and the others are cut.
    """
    index, tile_annotations = plan_tiles(
        images,
        annotations,
        tile_size=tiling.tile_size,
        overlap=dataset.overlap,
        min_visible=tiling.min_visible,
        keep_empty=tiling.keep_empty,
    )
    store = store.expanduser().resolve()
    digests = _digest_images(images, annotations, dataset.overlap, tiling)
    files = [
        f"{row['split']}/{row['tile_id']}.{digests[row['image_id']][:8]}.{tiling.image_format}"
        for row in index.to_dict("records")
    ]
    index = index.assign(path=pd.array([str(store / file) for file in files], dtype="string"))
    former = _read_manifest(store)
    tiles_of: dict[Any, pd.DataFrame] = dict(iter(index.groupby("image_id", sort=False)))
    contents = dict(zip(images["image_id"], images["sha256"], strict=True))
    unchanged = {
        image_id: {**former[image_id], "sha256": sha256}
        for image_id, sha256 in contents.items()
        if _is_unchanged(store, former.get(image_id), digests[image_id])
    }
    jobs = [
        _make_job(image, tiles_of.get(image["image_id"]), tiling)
        for image in images.to_dict("records")
        if image["image_id"] not in unchanged
    ]
    for folder in index["split"].unique():
        (store / folder).mkdir(parents=True, exist_ok=True)
    cut = _cut_all(jobs, digests, former, store, tiling.num_workers)
    manifest = unchanged | {
        image_id: {**entry, "sha256": contents[image_id]} for image_id, entry in cut.items()
    }
    _write_manifest(store, manifest)
    n_removed = _remove_stale(store, manifest, in_use)
    report = TilingReport(len(images), len(index), len(cut), len(unchanged), n_removed)
    return TiledData(index, tile_annotations, report)


def require_decodable(images: pd.DataFrame, store: Path) -> None:
    """Raise for images whose pixels cannot be decoded, before anything is made of the others.

    Images whose very bytes were decoded before are not decoded again.

    Args:
        images: Table ``images``.
        store: Folder of the tile files; it may be missing.

    Raises:
        DataError: Naming these images.
    """
    known = {entry.get("sha256") for entry in _read_manifest(store.expanduser()).values()}
    new = images.loc[~images["sha256"].isin(known), "path"]
    _raise_all(undecodable_images([Path(path) for path in new]))


def tiles_in_use(tile_index: Path) -> frozenset[str]:
    """Return the tile files that a stored ``tile_index`` names.

    Args:
        tile_index: Parquet file; none when it is missing, or damaged and hence of no use.
    """
    if not tile_index.is_file():
        return frozenset()
    content = tile_index.read_bytes()
    try:
        return frozenset(pd.read_parquet(io.BytesIO(content), columns=["path"])["path"])
    except (ValueError, OSError) as error:  # pyarrow's ways to say: damaged
        logger.warning("%s cannot be read (%s): it is written anew", tile_index, error)
        return frozenset()


def _raise_all(failures: list[str]) -> None:
    """Raise for images that cannot be used, if there are any."""
    if failures:
        more = f"\nand {len(failures) - _MANY:,} more" if len(failures) > _MANY else ""
        raise DataError("\n".join(sorted(failures)[:_MANY]) + more)


def _digest_images(
    images: pd.DataFrame, annotations: pd.DataFrame, overlap: int, tiling: TilingSection
) -> dict[str, str]:
    """Return for each image the digest of all that its tiles depend on."""
    settings = tiling.model_dump(mode="json", exclude={"num_workers"})
    if tiling.image_format == "png":
        del settings["jpeg_quality"]
    by_image = annotations.groupby("image_id").indices
    names = annotations["class_name"].to_numpy(dtype=object)
    corners = annotations[list(CORNERS)].to_numpy(dtype="<f8")
    flags = annotations[["difficult", "ignore"]].to_numpy(dtype=bool)
    digests = {}
    for image in images.to_dict("records"):
        rows = by_image.get(image["image_id"], [])
        source = [FORMAT_VERSION, image["sha256"], image["split"]]
        facts = [*source, overlap, settings, [*names[rows]]]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        digest.update(corners[rows].tobytes())
        digest.update(flags[rows].tobytes())
        digests[image["image_id"]] = digest.hexdigest()
    return digests


def _is_unchanged(store: Path, entry: dict[str, Any] | None, digest: str) -> bool:
    """Return whether an image's tiles are all there, of these contents and in full length."""
    if entry is None or entry["digest"] != digest:
        return False
    sizes = entry["tiles"]
    return all(_size_bytes(store / file) == size_bytes for file, size_bytes in sizes.items())


def _size_bytes(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _make_job(
    image: dict[Hashable, Any], tiles: pd.DataFrame | None, tiling: TilingSection
) -> PixelJob:
    rows = [] if tiles is None else zip(tiles["x"], tiles["y"], tiles["path"], strict=True)
    return PixelJob(
        image_id=image["image_id"],
        source=image["path"],
        width=image["width"],
        height=image["height"],
        tiles=tuple((int(x), int(y), str(path)) for x, y, path in rows),
        tile_size=tiling.tile_size,
        image_format=tiling.image_format,
        jpeg_quality=tiling.jpeg_quality,
    )


def _cut_all(
    jobs: list[PixelJob],
    digests: dict[str, str],
    former: Manifest,
    store: Path,
    num_workers: int,
) -> Manifest:
    """Cut the images of all jobs and return their entries; what was done survives a failure."""
    done: Manifest = {}
    failures: list[str] = []
    stretched: list[str] = []
    try:
        for job, outcome in track(_run(jobs, num_workers), len(jobs), "Cutting images"):
            if isinstance(outcome, DataError):
                failures.append(str(outcome))
                continue
            files = (Path(file).relative_to(store).as_posix() for _, _, file in job.tiles)
            sizes = dict(zip(files, outcome.sizes_bytes, strict=True))
            done[job.image_id] = {"digest": digests[job.image_id], "tiles": sizes}
            if outcome.value_range is not None:
                low, high = outcome.value_range
                stretched.append(f"{job.image_id} from {low:g}..{high:g}")
                logger.debug("Stretched %s to 0..255", stretched[-1])
    finally:
        if len(done) < len(jobs):
            _write_manifest(store, former | done)
    _raise_all(failures)
    if stretched:
        listed = ", ".join(sorted(stretched)[:_MANY])
        logger.info("Stretched %d images to 0..255: %s", len(stretched), listed)
    return done


def _run(jobs: list[PixelJob], num_workers: int) -> Iterator[tuple[PixelJob, Any]]:
    """Yield each job with its result or its DataError, in the order in which they end."""
    workers = min(num_workers or _count_cores(), len(jobs))
    work_px = sum(job.width * job.height for job in jobs)
    if workers <= 1 or work_px <= _SMALL_WORK_PX:
        for job in jobs:
            yield job, cut_or_explain(job)
        return
    context = multiprocessing.get_context("spawn")  # forking after torch has started can lock up
    with ProcessPoolExecutor(workers, mp_context=context) as executor:
        waiting = iter(jobs)
        pending: dict[Future[PixelResult | DataError], PixelJob] = {}
        try:
            while True:
                free = workers * _JOBS_A_WORKER - len(pending)
                for job in islice(waiting, free):
                    pending[executor.submit(cut_or_explain, job)] = job
                if not pending:
                    return
                ended, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield pending.pop(future), future.result()
        except BrokenProcessPool as error:
            raise DataError(
                "a tiling process was ended from outside, most likely because memory ran out: "
                f"lower tiling.num_workers (now {workers})"
            ) from error
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


def _count_cores() -> int:
    """Return the cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_manifest(store: Path) -> Manifest:
    """Return what the store holds; nothing when there is no readable record."""
    path = store / MANIFEST
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        logger.warning("%s is not readable JSON: cutting all tiles again", path)
        return {}
    return content["images"] if content.get("version") == FORMAT_VERSION else {}


def _write_manifest(store: Path, manifest: Manifest) -> None:
    """Replace the record of the store as a whole."""
    store.mkdir(parents=True, exist_ok=True)
    partial = store / f"{MANIFEST}.{os.getpid()}.partial"
    content = {"version": FORMAT_VERSION, "images": dict(sorted(manifest.items()))}
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    partial.replace(store / MANIFEST)


def _remove_stale(store: Path, manifest: Manifest, in_use: Collection[str]) -> int:
    """Remove files of tiles that nobody needs any more, and return how many."""
    wanted = {store / file for entry in manifest.values() for file in entry["tiles"]}
    wanted.update(map(Path, in_use))
    stale = [path for path in store.glob("*/*") if path.is_file() and path not in wanted]
    for path in stale:
        path.unlink()
    return len(stale)
