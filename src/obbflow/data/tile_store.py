"""The folder with the tile files, cut again only where something changed.

A file's name holds a digest of all that it depends on, so tiles of other settings never take the
place of those that an earlier ``tile_index`` names: an interrupted run leaves both usable. Files
that belong to no image any more are removed last, unless they are still in use.
"""

import hashlib
import io
import json
import logging
import os
from collections.abc import Collection, Hashable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from obbflow.config import DatasetSection, TilingSection
from obbflow.data.executors import SerialExecutor, open_executor, run_jobs
from obbflow.data.progress import track
from obbflow.data.tile_check import GeometryCheck, check_geometry
from obbflow.data.tile_damage import describe_damage, require_usable_rest
from obbflow.data.tile_manifest import (
    FORMAT_VERSION,
    Manifest,
    has_journal,
    note_image,
    open_journal,
    read_manifest,
    write_manifest,
)
from obbflow.data.tile_pixels import PixelJob, TileJob, cut_or_explain, is_stored_as_shown
from obbflow.data.tile_plan import load_or_plan
from obbflow.data.tile_settings import keep_settings
from obbflow.data.tile_tables import scaled_size, warn_about_lost
from obbflow.errors import DataError
from obbflow.tables import CORNERS, TILE_INDEX

logger = logging.getLogger(__name__)

_SMALL_WORK_PX = 20_000_000  # starting processes takes longer than cutting this
_MANY = 10  # what is listed of a long list
_NAME_LENGTH = 40  # of an image in the names of its tiles: file systems allow 255 bytes in all
_HEADER_THREADS = 4
_JOBS_OF_ANY_EXECUTOR = 64  # submitted at once: results are small, jobs are descriptions only


@dataclass(frozen=True)
class TilingReport:
    """Numbers of one run: images, tiles, images cut and left as they were, files removed.

    Damaged images are in none of them.
    """

    n_images: int
    n_tiles: int
    n_cut: int
    n_unchanged: int
    n_removed: int
    geometry: GeometryCheck


@dataclass(frozen=True)
class TiledData:
    """Tables ``tile_index`` and ``tile_annotations``, and what was done for them.

    ``issues`` has the columns of ``data_issues``, and a row for each image left out as damaged.
    """

    tile_index: pd.DataFrame
    tile_annotations: pd.DataFrame
    issues: pd.DataFrame
    report: TilingReport


def tile_data_set(
    images: pd.DataFrame,
    annotations: pd.DataFrame,
    dataset: DatasetSection,
    tiling: TilingSection,
    store: Path,
    *,
    in_use: Collection[str] = (),
    executor: Executor | None = None,
) -> TiledData:
    """Cut all images into tiles, again only where an image, its labels or a setting changed.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations``.
        dataset: Section ``dataset``; ``overlap``, ``bands``, ``stretch_percentiles`` and
            ``strict`` count.
        tiling: Section ``tiling``.
        store: Folder of the tile files; made when missing. It holds nothing else.
        in_use: Tile files that are kept although no image has them any more: an earlier
            ``tile_index`` names them until the new one is written. The next call removes them.
        executor: Who cuts; None: the one that ``tiling.executor`` names. It changes no tile.

    Returns:
        The tables and numbers. An image whose pixels turn out to be damaged is a row of ``issues``
        and nothing else: no tile of it stays, and the next run tries it again.

    Raises:
        DataError: If images are damaged, and ``strict`` is set or no training tile shows an object
            without them. They are named together, and all others are cut.
    """
    store = store.expanduser().resolve()
    store.mkdir(parents=True, exist_ok=True)
    digests = _digest_images(images, annotations, dataset, tiling)
    index, tile_annotations, geometry = load_or_plan(
        store, images, annotations, digests, dataset.overlap, tiling
    )
    warn_about_lost(annotations, tile_annotations, tiling.min_visible)
    in_place = _find_in_place(images) if dataset.bands is None else set()
    paths = _choose_paths(index, images, in_place, digests, store, tiling.image_format)
    index = index.assign(path=paths)
    former = read_manifest(store)
    files = _list_files(store)
    changed = {
        image_id
        for image_id, digest in digests.items()
        if not _is_unchanged(former.get(image_id), digest, files)
    }
    for folder in index["split"].unique():
        (store / folder).mkdir(exist_ok=True)
    jobs = _make_jobs(images, index, changed, in_place, dataset, tiling)
    cut, damaged = _cut_all(jobs, digests, store, tiling, executor)
    require_usable_rest(index, damaged, strict=dataset.strict)
    issues = describe_damage(damaged, images, dataset.data_root)
    if damaged:
        images, annotations, index = (
            table[~table["image_id"].isin(damaged)].reset_index(drop=True)
            for table in (images, annotations, index)
        )
        is_shown = tile_annotations["tile_id"].isin(index["tile_id"])
        tile_annotations = tile_annotations[is_shown].reset_index(drop=True)
        geometry = check_geometry(
            images, annotations, index, tile_annotations, dataset.overlap, tiling
        )
    known = former | cut
    manifest = {image_id: known[image_id] for image_id in images["image_id"]}
    _log_stretched(cut)
    if manifest != former or has_journal(store):
        write_manifest(store, manifest)
    n_removed = _remove_stale(store, _list_files(store) if jobs else files, manifest, in_use)
    n_unchanged = len(images) - len(cut)
    report = TilingReport(len(images), len(index), len(cut), n_unchanged, n_removed, geometry)
    is_stretched = bool(images["dtype"].ne("uint8").any())
    index = keep_settings(index[list(TILE_INDEX)], dataset, tiling, is_stretched=is_stretched)
    index.attrs["geometry_check"] = asdict(geometry)
    return TiledData(index, tile_annotations, issues, report)


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


def _digest_images(
    images: pd.DataFrame,
    annotations: pd.DataFrame,
    dataset: DatasetSection,
    tiling: TilingSection,
) -> dict[str, str]:
    """Return for each image the digest of all that its tiles depend on."""
    settings = tiling.of_tiles()
    by_image = annotations.groupby("image_id").indices
    names = annotations["class_name"].to_numpy(dtype=object)
    corners = annotations[list(CORNERS)].to_numpy(dtype="<f8")
    flags = annotations[["difficult", "ignore", "lookalike"]].to_numpy(dtype=bool)
    digests = {}
    columns = ["image_id", "sha256", "split", "is_tile", "dtype"]
    for *source, dtype in images[columns].itertuples(index=False, name=None):
        image_id = source[0]
        rows = by_image.get(image_id, [])
        pixels = [dataset.bands, dataset.stretch_percentiles if dtype != "uint8" else None]
        facts = [FORMAT_VERSION, *source, *pixels, dataset.overlap, settings, [*names[rows]]]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        digest.update(corners[rows].tobytes())
        digest.update(flags[rows].tobytes())
        digests[image_id] = digest.hexdigest()
    return digests


def _choose_paths(
    index: pd.DataFrame,
    images: pd.DataFrame,
    in_place: set[str],
    digests: dict[str, str],
    store: Path,
    image_format: str,
) -> "pd.Series[str]":
    """Return the file of each tile: in the store, or the image itself that is used in place."""
    of_image = dict(zip(images["image_id"], images["path"], strict=True))
    paths = []
    columns = ["image_id", "split", "tile_id"]
    for image_id, split, tile_id in index[columns].itertuples(index=False, name=None):
        if image_id in in_place:
            paths.append(of_image[image_id])
            continue
        # The name of the tile, with the image's own name alone in the place of its whole path.
        name = image_id.rpartition("/")[2][:_NAME_LENGTH] + tile_id.removeprefix(image_id)
        file = f"{name}.{digests[image_id][:16]}.{image_format}"
        paths.append(os.path.join(store, split, file))  # noqa: PTH118 - a tenth of Path's time
    return pd.Series(pd.array(paths, dtype="string"), index=index.index)


def _find_in_place(images: pd.DataFrame) -> set[str]:
    """Return the images that are tiles and need no conversion."""
    tiles = images[images["is_tile"]]
    with ThreadPoolExecutor(_HEADER_THREADS) as threads:
        found = threads.map(is_stored_as_shown, tiles["path"], tiles["bands"], tiles["dtype"])
        return {name for name, is_it in zip(tiles["image_id"], found, strict=True) if is_it}


def _list_files(store: Path) -> dict[str, int]:
    """Return the files in the folders of the store, named relative to it, and their bytes."""
    return {
        f"{folder.name}/{entry.name}": entry.stat().st_size
        for folder in store.iterdir()
        if folder.is_dir()
        for entry in os.scandir(folder)
        if entry.is_file()
    }


def _is_unchanged(entry: dict[str, Any] | None, digest: str, files: dict[str, int]) -> bool:
    """Return whether an image's tiles are all there, of these contents and in full length."""
    if entry is None or entry["digest"] != digest:
        return False
    return all(files.get(file) == size_bytes for file, size_bytes in entry["tiles"].items())


def _make_jobs(
    images: pd.DataFrame,
    index: pd.DataFrame,
    changed: set[str],
    in_place: set[str],
    dataset: DatasetSection,
    tiling: TilingSection,
) -> list[PixelJob]:
    """Return one job for each of the images ``changed``, with its tiles that lie in the store."""
    if not changed:
        return []
    own = index[index["image_id"].isin(changed - in_place)]
    tiles_of = {name: rows.to_dict("records") for name, rows in own.groupby("image_id")}
    return [
        PixelJob(
            image_id=image["image_id"],
            source=image["path"],
            width=image["width"],
            height=image["height"],
            bands=dataset.bands,
            stretch=dataset.stretch_percentiles,
            tiles=tuple(_make_tile(image, tile) for tile in tiles_of.get(image["image_id"], ())),
            image_format=tiling.image_format,
            jpeg_quality=tiling.jpeg_quality,
            jpeg_chroma=tiling.jpeg_chroma,
        )
        for image in images[images["image_id"].isin(changed)].to_dict("records")
    ]


def _make_tile(image: dict[Hashable, Any], tile: dict[Hashable, Any]) -> TileJob:
    is_whole = pd.isna(tile["size"])
    shown = (tile["width"], tile["height"])
    return TileJob(
        file=tile["path"],
        x=tile["x"],
        y=tile["y"],
        width=shown[0],
        height=shown[1],
        canvas=shown if is_whole else (int(tile["size"]), int(tile["size"])),
        image_size=scaled_size(image["width"], image["height"], tile["scale"]),
    )


def _cut_all(
    jobs: list[PixelJob],
    digests: dict[str, str],
    store: Path,
    tiling: TilingSection,
    executor: Executor | None,
) -> tuple[Manifest, dict[str, DataError]]:
    """Cut all images; return the entries of those that are cut, and what is wrong with others."""
    done: Manifest = {}
    damaged: dict[str, DataError] = {}
    if not jobs:
        return done, damaged
    with _choose_executor(jobs, tiling, executor) as (chosen, at_once), open_journal(store) as file:
        outcomes = run_jobs(chosen, cut_or_explain, jobs, at_once=at_once)
        for job, outcome in track(outcomes, len(jobs), "Cutting images"):
            if isinstance(outcome, DataError):
                damaged[job.image_id] = outcome
                continue
            files = (Path(tile.file).relative_to(store).as_posix() for tile in job.tiles)
            done[job.image_id] = {
                "digest": digests[job.image_id],
                "tiles": dict(zip(files, outcome.sizes_bytes, strict=True)),
                "stretched": outcome.value_range,
            }
            note_image(file, job.image_id, done[job.image_id])
    return done, damaged


def _choose_executor(
    jobs: list[PixelJob], tiling: TilingSection, executor: Executor | None
) -> AbstractContextManager[tuple[Executor, int]]:
    """Return a context with an executor and the number of jobs it takes at once."""
    if executor is not None:
        return nullcontext((executor, _JOBS_OF_ANY_EXECUTOR))
    work_px = sum(job.width * job.height for job in jobs)
    if tiling.executor == "process" and work_px <= _SMALL_WORK_PX:
        return nullcontext((SerialExecutor(), 1))
    return open_executor(tiling, len(jobs))


def _log_stretched(cut: Manifest) -> None:
    """Say which of the images that were cut have more than 8 bits."""
    ranges = {name: entry["stretched"] for name, entry in cut.items()}
    stretched = [f"{name} from {ends[0]:g}..{ends[1]:g}" for name, ends in ranges.items() if ends]
    if stretched:
        listed = ", ".join(sorted(stretched)[:_MANY])
        logger.info("Stretched %d images to 0..255: %s", len(stretched), listed)


def _remove_stale(
    store: Path, files: Collection[str], manifest: Manifest, in_use: Collection[str]
) -> int:
    """Remove those of the files in the store that nobody needs any more, and return how many."""
    wanted = {file for entry in manifest.values() for file in entry["tiles"]}
    unwanted = [store / file for file in files if file not in wanted]
    used = set(in_use)
    stale = [path for path in unwanted if str(path) not in used]
    for path in stale:
        path.unlink()
    return len(stale)
