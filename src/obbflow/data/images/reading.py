"""What both libraries that read images share: which one reads a file, and why it cannot."""

import contextlib
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image, UnidentifiedImageError

BROKEN = (OSError, SyntaxError, ValueError, EOFError, struct.error, UnidentifiedImageError)
"""What is raised for files that are no images or end too early."""

PILLOW_FORMATS = ("JPEG", "BMP", "WEBP")  # JPEG includes MPO

_GDAL_DRIVERS = {
    b"II*\0": "GTiff",
    b"MM\0*": "GTiff",
    b"II+\0": "GTiff",  # BigTIFF
    b"MM\0+": "GTiff",
    b"\x89PNG": "PNG",
}

_lock = threading.Lock()
_lifted: list[int | None] = []  # the limit, once for each that has it lifted


def find_driver(path: Path) -> str | None:
    """Return the GDAL driver of a file by its first bytes, None when Pillow reads it.

    Of a PNG with 16 bits a sample and three colours Pillow cuts off 8, of other PNGs it takes
    three times as long as GDAL; many TIFFs it does not read at all.

    Raises:
        OSError: If the file cannot be read or is empty.
    """
    with path.open("rb") as stream:
        start = stream.read(4)
    if not start:
        raise OSError("the file is empty")
    return _GDAL_DRIVERS.get(start)


@contextlib.contextmanager
def unlimited_pixels() -> Iterator[int | None]:
    """Lift Pillow's limit against decompression bombs: these images are the user's own.

    The limit belongs to the process. It is back when the last of all threads is done.

    Yields:
        The limit, px.
    """
    with _lock:
        limit = _lifted[0] if _lifted else Image.MAX_IMAGE_PIXELS
        _lifted.append(limit)
        Image.MAX_IMAGE_PIXELS = None
    try:
        yield limit
    finally:
        with _lock:
            _lifted.pop()
            if not _lifted:
                Image.MAX_IMAGE_PIXELS = limit


def describe(error: BaseException) -> str:
    """Return why an image cannot be used, without the file's name, which stands before it."""
    if isinstance(error, UnidentifiedImageError):
        return "it is no image of a known format (PNG, JPEG, TIFF, BMP, WebP)"
    reason = error.strerror if isinstance(error, OSError) else None
    return f"the image cannot be read ({reason or error})"


def require_bands(available: int, bands: Sequence[int] | None) -> None:
    """Raise if an image lacks one of the bands that are asked for.

    Raises:
        ValueError: Saying how many it has.
    """
    if bands is not None and max(bands) > available:
        raise ValueError(f"dataset.bands asks for band {max(bands)}, the image has {available}")
