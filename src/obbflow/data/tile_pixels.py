"""Writing the tile files of one image: the work of a tiling process, free of torch and pandas."""

import io
import math
import os
import struct
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray
from PIL import Image

from obbflow.data.images import PixelSource, open_image
from obbflow.errors import DataError

PARTIAL = ".partial"
"""Ending of a tile file that is being written."""

_FILTER_UP = 2  # of PNG: each row is stored as its difference to the one above
_PNG_RGB = (8, 2, 0, 0, 0)  # bits, colour type, compression, filter method, no interlace
_ORIENTATION = 0x0112  # the EXIF tag
_REACH = 2  # px of the coarser of both images that resizing looks at beyond a border

_of_thread = threading.local()


@dataclass(frozen=True)
class TileJob:
    """One tile file: what part of the resized image it shows, px, and the size it is padded to.

    ``image_size`` is that of the resized image.
    """

    file: str
    x: int
    y: int
    width: int
    height: int
    canvas: tuple[int, int]
    image_size: tuple[int, int]


@dataclass(frozen=True)
class PixelJob:
    """The tiles to be cut from one image.

    ``width`` and ``height`` are the image's, px; ``bands`` and ``stretch`` are those of
    ``open_image``. Without tiles the image is only decoded: one that is used as it is has to be
    whole.
    """

    image_id: str
    source: str
    width: int
    height: int
    bands: tuple[int, ...] | None
    stretch: tuple[float, float]
    tiles: tuple[TileJob, ...]
    image_format: Literal["png", "jpg"]
    jpeg_quality: int
    jpeg_chroma: Literal["4:4:4", "4:2:0"]


@dataclass(frozen=True)
class PixelResult:
    """What came of a job: bytes of each tile file, and the sample values that became 0 and 255."""

    sizes_bytes: tuple[int, ...]
    value_range: tuple[float, float] | None


def cut_pixels(job: PixelJob) -> PixelResult:
    """Open an image once and write its tiles, each under another name first.

    Tiles are cut row by row, as blocks of an image lie in its file: few are decoded twice. A tile
    that reaches beyond the image is padded with black on the right and below.

    Args:
        job: What to cut; the folders of its tiles exist.

    Returns:
        The sizes of the files, in the order of ``job.tiles``.

    Raises:
        DataError: If the image is broken or has another size than ``job`` says.
        OSError: If a file cannot be written: it names the folder, and no part of the file is left.
    """
    with open_image(Path(job.source), bands=job.bands, stretch=job.stretch) as pixels:
        if (pixels.width, pixels.height) != (job.width, job.height):
            raise DataError(
                f"{job.source}: {pixels.width} x {pixels.height} px, but {job.width} x "
                f"{job.height} when it was read first; start again once nobody writes to the data "
                "set"
            )
        if not job.tiles:
            pixels.require_decodable()
        by_row = sorted(job.tiles, key=lambda tile: (tile.image_size, tile.y, tile.x))
        sizes = {tile.file: _write_tile(pixels, tile, job) for tile in by_row}
        return PixelResult(tuple(sizes[tile.file] for tile in job.tiles), pixels.value_range)


def is_stored_as_shown(path: str, bands: int, dtype: str) -> bool:
    """Return whether Pillow shows an image as it is: 8 bits, grey or RGB, upright and no TIFF.

    Args:
        path: Of the image file.
        bands: Channels, as in table ``images``.
        dtype: Of one sample, as in table ``images``.
    """
    if dtype != "uint8" or bands not in {1, 3}:
        return False
    if path.lower().endswith((".tif", ".tiff")):  # of many kinds, of which some are for GDAL alone
        return False
    with Image.open(path) as image:
        # Without this chunk in the header, getexif would decode a PNG's pixels.
        if image.format == "PNG" and "exif" not in image.info:
            return True
        return int(image.getexif().get(_ORIENTATION, 1)) == 1


def cut_or_explain(job: PixelJob) -> PixelResult | DataError:
    """Return the result of ``cut_pixels``, or what is wrong with the image: for one report of all.

    Raises:
        OSError: If a file cannot be written: those of the next image could not be either.
    """
    try:
        return cut_pixels(job)
    except DataError as error:
        return error


def encode_png(pixels: NDArray[np.uint8]) -> list[bytes]:
    """Return the pieces of a PNG file of (H, W, 3) RGB, in order.

    Every row is filtered in one way ("up") and compressed with ISA-L: as small as Pillow's fastest
    setting leaves aerial images, in a tenth of its time.
    """
    height, width = pixels.shape[:2]
    rows = _reuse("rows", height, 1 + 3 * width)
    flat = pixels.reshape(height, -1)
    rows[:, 0] = _FILTER_UP
    rows[0, 1:] = flat[0]
    np.subtract(flat[1:], flat[:-1], out=rows[1:, 1:])  # wraps around, as PNG has it
    pieces = [b"\x89PNG\r\n\x1a\n"]
    for kind, data in (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, *_PNG_RGB)),
        (b"IDAT", isal_zlib.compress(rows, 1)),
        (b"IEND", b""),
    ):
        checksum = isal_zlib.crc32(data, isal_zlib.crc32(kind))
        pieces += [struct.pack(">I", len(data)) + kind, data, struct.pack(">I", checksum)]
    return pieces


def _encode_jpeg(pixels: NDArray[np.uint8], job: PixelJob) -> list[bytes]:
    """Return the pieces of a JPEG file, of which there is one."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(
        stream, format="JPEG", quality=job.jpeg_quality, subsampling=job.jpeg_chroma
    )
    return [stream.getvalue()]  # shared with the stream, not copied


def _reuse(use: str, *shape: int) -> NDArray[np.uint8]:
    """Return an array of this thread, with what it held last.

    Several MB of new memory for each tile would take longer than filling it.
    """
    array: NDArray[np.uint8] | None = getattr(_of_thread, use, None)
    if array is None or array.shape != shape:
        array = np.empty(shape, dtype=np.uint8)
        setattr(_of_thread, use, array)
    return array


def _write_tile(pixels: PixelSource, tile: TileJob, job: PixelJob) -> int:
    """Write the file of a tile and return its bytes."""
    width, height = tile.canvas
    canvas = _reuse("canvas", height, width, 3)
    _read_resized(pixels, tile, canvas[: tile.height, : tile.width])
    canvas[tile.height :] = 0
    canvas[: tile.height, tile.width :] = 0
    if job.image_format == "png":
        return _write(Path(tile.file), encode_png(canvas))
    return _write(Path(tile.file), _encode_jpeg(canvas, job))


def _write(path: Path, pieces: Iterable[bytes]) -> int:
    """Write a file, under another name first, and return its bytes."""
    partial = path.with_name(f"{path.name}.{os.urandom(4).hex()}{PARTIAL}")
    try:
        with partial.open("wb") as stream:
            stream.writelines(pieces)
            size_bytes = stream.tell()
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        # Writing, unlike opening, does not say where.
        raise OSError(error.errno, error.strerror, str(path.parent)) from error
    return size_bytes


def _read_resized(pixels: PixelSource, tile: TileJob, out: NDArray[np.uint8]) -> None:
    """Write what a tile shows into ``out``, (height, width, 3)."""
    if tile.image_size == (pixels.width, pixels.height):
        pixels.read(tile.x, tile.y, tile.width, tile.height, out)
        return
    # Only the part below the tile is read, and as much around it as the filter looks at: the
    # result is the one that resizing the whole image would give.
    left, right, x1, x2 = _source_range(tile.x, tile.width, tile.image_size[0], pixels.width)
    top, bottom, y1, y2 = _source_range(tile.y, tile.height, tile.image_size[1], pixels.height)
    part = Image.fromarray(pixels.read(left, top, right - left, bottom - top))
    size, box = (tile.width, tile.height), (x1, y1, x2, y2)
    out[:] = np.asarray(part.resize(size, Image.Resampling.BILINEAR, box=box))


def _source_range(
    start: int, length: int, resized: int, full: int
) -> tuple[int, int, float, float]:
    """Return the px to be read along one axis, and which part of these makes the tile's px."""
    factor = full / resized
    margin = math.ceil(_REACH * max(1.0, factor))
    low = max(0, math.floor(start * factor) - margin)
    high = min(full, math.ceil((start + length) * factor) + margin)
    # Rounding may push the last border a little beyond the image.
    return low, high, start * factor - low, min((start + length) * factor, high) - low
