"""Image files: finding them, the facts of their headers, and their pixels as 8-bit RGB.

Every image that the formats below can hold becomes three channels of 8 bits, in the way a person
sees it: the EXIF orientation is applied, a palette becomes its colours, CMYK becomes RGB, and the
fourth band (alpha or near infrared) is left out. Samples of more than 8 bits are stretched
linearly between two percentiles of the whole image, so all its tiles share one scale.
"""

import contextlib
import hashlib
import logging
import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from obbflow.data.progress import track
from obbflow.errors import DataError

logger = logging.getLogger(__name__)

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp")
STRETCH_PERCENTILES = (0.1, 99.9)
"""Samples at and beyond these become 0 and 255, where there are more than 8 bits."""

_FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "WEBP")  # JPEG includes MPO
_ORIENTATION = 0x0112  # the EXIF tag; values 5 to 8 exchange width and height
_PERCENTILE_SAMPLES = 1_000_000
_ROWS_A_CHUNK = 256
_SAMPLES_A_PIXEL = 277  # the TIFF tag
_TIFF_OFFSETS_AND_COUNTS = ((273, 279), (324, 325))  # of strips, of tiles
_THREADS = 4  # reading and hashing wait for the disk and let go of the interpreter lock
_BROKEN = (OSError, SyntaxError, ValueError, EOFError, struct.error, UnidentifiedImageError)
"""What Pillow raises for files that are no images or end too early."""


@dataclass(frozen=True)
class ImageFacts:
    """What is known of an image without its pixels.

    ``width`` and ``height`` are px as shown, ``bands`` the stored channels, ``dtype`` one sample
    as numpy names it, ``sha256`` the digest of the file's bytes.
    """

    width: int
    height: int
    bands: int
    dtype: str
    sha256: str


def is_image_name(name: str) -> bool:
    """Return whether a file of this name is taken for an image, by its ending in any case."""
    return name.lower().endswith(IMAGE_SUFFIXES)


def probe_images(paths: Sequence[Path]) -> tuple[dict[Path, ImageFacts], dict[Path, str]]:
    """Return the facts of all images that are whole, and why each of the others is not.

    Args:
        paths: Image files; may be empty.

    Returns:
        Facts by path, and the reason by path of a file that is no image or ends too early.
    """
    facts: dict[Path, ImageFacts] = {}
    broken: dict[Path, str] = {}
    with _unlimited_pixels() as limit, ThreadPoolExecutor(_THREADS) as threads:
        found = threads.map(_probe, paths)
        for path, result in track(zip(paths, found, strict=True), len(paths), "Reading images"):
            if isinstance(result, str):
                broken[path] = result
                continue
            facts[path] = result
            if limit is not None and result.width * result.height > limit:
                logger.warning(
                    "%s: %.1f megapixels, decoding it takes up to %.1f GB of memory",
                    path,
                    result.width * result.height / 1e6,
                    result.width * result.height * 4 / 1e9,
                )
    return facts, broken


def load_image(path: Path) -> tuple[Image.Image, tuple[float, float] | None]:
    """Return an image as 8-bit pixels in the orientation in which it is shown.

    Args:
        path: A file of one of ``IMAGE_SUFFIXES``.

    Returns:
        The image in mode "L" (one grey channel, to save memory) or "RGB"; and the two sample
        values that became 0 and 255, None where samples have 8 bits and stay as they are.

    Raises:
        DataError: If the file is no image or ends too early.
    """
    try:
        with _unlimited_pixels(), Image.open(path, formats=_FORMATS) as image:
            is_upright = _orientation(image) == 1
            image.load()
            shown = image if is_upright else ImageOps.exif_transpose(image)
            if _sample_type(image) == "uint8":
                mode = "L" if shown.mode in {"1", "L", "LA"} else "RGB"
                # convert would copy even an image of this mode
                return shown if shown.mode == mode else shown.convert(mode), None
            samples = np.asarray(shown)
    except _BROKEN as error:
        raise DataError(f"{path}: {_describe(error)}; replace or remove the image") from error
    low, high = _stretch_limits(samples)
    return Image.fromarray(_stretch(samples, low, high)), (low, high)


def undecodable_images(paths: Sequence[Path]) -> list[str]:
    """Return why images cannot be decoded, one message an image that cannot.

    Args:
        paths: Image files; may be empty.
    """
    # Decoding lets go of the interpreter lock.
    with _unlimited_pixels(), ThreadPoolExecutor(_THREADS) as threads:
        found = track(threads.map(_explain_decoding, paths), len(paths), "Decoding images")
        return [message for message in found if message is not None]


def decode_image(path: Path) -> NDArray[np.uint8]:
    """Return an image as (H, W, 3) RGB, 8 bits a channel; see ``load_image``.

    Raises:
        DataError: If the file is no image or ends too early.
    """
    image, _ = load_image(path)
    return np.asarray(image.convert("RGB"))


@contextlib.contextmanager
def _unlimited_pixels() -> Iterator[int | None]:
    """Lift Pillow's limit against decompression bombs: these images are the user's own."""
    limit = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = None
    try:
        yield limit
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def _explain_decoding(path: Path) -> str | None:
    """Return why an image cannot be decoded, None when it can."""
    try:
        load_image(path)
    except DataError as error:
        return str(error)
    return None


def _probe(path: Path) -> ImageFacts | str:
    """Return the facts of one image, or why it cannot be used."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        with Image.open(path, formats=_FORMATS) as image:
            is_turned = _orientation(image) in {5, 6, 7, 8}
            width, height = image.size[::-1] if is_turned else image.size
            facts = ImageFacts(width, height, _count_bands(image), _sample_type(image), digest)
            missing = _find_missing_end(image, path)
    except _BROKEN as error:
        return _describe(error)
    return missing or facts


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation that is still to be applied, 1 for none."""
    if image.format == "TIFF":  # Pillow turns these itself
        return 1
    if image.format == "PNG" and "exif" not in image.info:  # getexif would decode the pixels
        return 1
    return int(image.getexif().get(_ORIENTATION, 1))


def _count_bands(image: Image.Image) -> int:
    """Return the stored channels; Pillow's mode leaves out a TIFF's bands beyond the third."""
    stored = getattr(image, "tag_v2", {}).get(_SAMPLES_A_PIXEL)
    return int(stored or len(image.getbands()))


def _sample_type(image: Image.Image) -> str:
    if image.mode.startswith("I;16"):
        return "uint16"
    return {"I": "int32", "F": "float32"}.get(image.mode, "uint8")


def _find_missing_end(image: Image.Image, path: Path) -> str | None:
    """Return what says that a file was cut off, without decoding it; None when it is whole."""
    size_bytes = path.stat().st_size
    cut_off = f"the file ends after {size_bytes:,} bytes, before its image does"
    if image.format == "PNG":
        with Image.open(path, formats=_FORMATS) as untouched:
            untouched.verify()  # walks over all chunks and compares their checksums
        return None
    if image.format in {"JPEG", "MPO"}:
        with path.open("rb") as stream, _map(stream.fileno()) as content:
            # Scans follow the last SOS marker; an embedded thumbnail comes before it.
            return None if content.find(b"\xff\xd9", content.rfind(b"\xff\xda")) > 0 else cut_off
    if image.format == "TIFF":
        return cut_off if _end_of_tiff(image) > size_bytes else None
    with path.open("rb") as stream:
        header = stream.read(12)
    if image.format == "BMP":
        return cut_off if int.from_bytes(header[2:6], "little") > size_bytes else None
    return cut_off if int.from_bytes(header[4:8], "little") + 8 > size_bytes else None  # WEBP


def _map(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


def _end_of_tiff(image: Image.Image) -> int:
    """Return the byte after the last strip or tile of a TIFF."""
    tags = getattr(image, "tag_v2", {})
    ends = [0]
    for offset_tag, count_tag in _TIFF_OFFSETS_AND_COUNTS:
        offsets, counts = _as_tuple(tags.get(offset_tag)), _as_tuple(tags.get(count_tag))
        ends.extend(offset + count for offset, count in zip(offsets, counts, strict=False))
    return max(ends)


def _as_tuple(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Iterable) else (int(str(value)),)


def _describe(error: BaseException) -> str:
    """Return why an image cannot be used, without the file's name, which stands before it."""
    if isinstance(error, UnidentifiedImageError):
        return "it is no image of a known format (PNG, JPEG, TIFF, BMP, WebP)"
    return f"the image cannot be read ({error})"


def _stretch_limits(samples: NDArray[np.generic]) -> tuple[float, float]:
    """Return the sample values that become 0 and 255."""
    step = max(1, int(np.sqrt(samples.size / _PERCENTILE_SAMPLES)))
    some = samples[::step, ::step].astype(np.float64)
    some = some[np.isfinite(some)]
    if not some.size:
        return 0.0, 1.0
    low, high = np.percentile(some, STRETCH_PERCENTILES)
    return (float(low), float(high)) if high > low else (float(some.min()), float(some.max()))


def _stretch(samples: NDArray[np.generic], low: float, high: float) -> NDArray[np.uint8]:
    """Return samples between ``low`` and ``high`` on the scale 0 to 255; NaN becomes 0."""
    result = np.empty(samples.shape, dtype=np.uint8)
    scale = 255 / (high - low) if high > low else 0.0
    for start in range(0, len(samples), _ROWS_A_CHUNK):
        rows = samples[start : start + _ROWS_A_CHUNK].astype(np.float64)
        inside = np.nan_to_num(rows, nan=low).clip(low, high)
        result[start : start + _ROWS_A_CHUNK] = ((inside - low) * scale).round()
    return result
