"""Small data sets in DOTA layout, drawn for a test."""

import struct
import zlib
from collections.abc import Collection, Sequence
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from obbflow.config import DatasetSection, TilingSection
from obbflow.data.checks import check_annotations
from obbflow.data.formats import read_data_set
from obbflow.data.tile_store import TiledData, tile_data_set
from obbflow.tables import ANNOTATIONS, CORNERS, IMAGES, make_table

SQUARE = "10 10 30 10 30 30 10 30"


def write_scene(
    folder: Path,
    name: str,
    lines: Sequence[str] | None = (f"{SQUARE} plane 0",),
    *,
    size: tuple[int, int] = (64, 48),
    seed: int = 0,
    suffix: str = ".png",
    same_folder: bool = False,
) -> Path:
    """Write an image of noise, and its label file unless ``lines`` is None; return the image."""
    image_folder = folder if same_folder else folder / "images"
    label_folder = folder if same_folder else folder / "labelTxt"
    image_folder.mkdir(parents=True, exist_ok=True)
    label_folder.mkdir(parents=True, exist_ok=True)
    width, height = size
    pixels = np.random.default_rng([seed, *name.encode()]).integers(0, 256, (height, width, 3))
    path = image_folder / f"{name}{suffix}"
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    if lines is not None:
        (label_folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_broken_png(path: Path, size: tuple[int, int] = (64, 48)) -> None:
    """Write a PNG whose chunks and checksums are right, and whose pixels are not."""
    header = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", b"no deflated pixels"), (b"IEND", b"")]
    content = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)


def cut_scenes(
    root: Path,
    store: Path,
    *,
    overlap: int = 16,
    in_use: Collection[str] = (),
    executor: Executor | None = None,
    ready: Path | None = None,
    strict: bool = False,
    **tiling: object,
) -> TiledData:
    """Return what becomes of the scenes below ``root``, cut into tiles of 64 px.

    ``ready`` is a root of ready-made training tiles.
    """
    dataset = DatasetSection(data_root=root, overlap=overlap, train_tiles_dir=ready, strict=strict)
    data = read_data_set(root, dataset, seed=0)
    annotations, _ = check_annotations(data.images, data.annotations, data.issues, dataset)
    section = TilingSection.model_validate({"tile_size": 64, "num_workers": 1, **tiling})
    return tile_data_set(
        data.images, annotations, dataset, section, store, in_use=in_use, executor=executor
    )


def images_table(*rows: tuple[str, str, int, int], sha256: str = "0") -> pd.DataFrame:
    """Return table ``images`` from (image_id, split, width, height)."""
    columns = ["image_id", "split", "width", "height"]
    facts = {"path": "", "bands": 3, "dtype": "uint8", "sha256": sha256, "gsd": np.nan}
    table = pd.DataFrame(rows, columns=columns)
    return make_table(table.assign(**facts, group=table["image_id"], is_tile=False), IMAGES)


def annotations_table(
    *rows: tuple[str, str, Sequence[float]],
    difficult: bool | Sequence[bool] = False,
    ignore: bool | Sequence[bool] = False,
    lookalike: bool | Sequence[bool] = False,
) -> pd.DataFrame:
    """Return table ``annotations`` from (image_id, class, eight coordinates), lines from 3 on."""
    table = pd.DataFrame([(*row[:2], *row[2]) for row in rows])
    table.columns = ["image_id", "class_name", *CORNERS][: table.shape[1]]
    numbers = range(len(rows))
    return make_table(
        table.assign(
            object_id=numbers,
            difficult=difficult,
            ignore=ignore,
            lookalike=lookalike,
            source_file="labelTxt/P1.txt",
            source_line=[number + 3 for number in numbers],
        ),
        ANNOTATIONS,
    )


def level_box(x1: float, y1: float, x2: float, y2: float) -> list[float]:
    """Return the corners of a level box, clockwise from the top left one."""
    return [x1, y1, x2, y1, x2, y2, x1, y2]
