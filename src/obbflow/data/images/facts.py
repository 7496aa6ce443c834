"""Image files: finding them by name, and what is known of them without their pixels."""

import hashlib
import logging
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from obbflow.data.images import gdal
from obbflow.data.images.georeference import measure_gsd
from obbflow.data.images.headers import (
    ORIENTATION,
    count_colours,
    read_orientation,
    read_png_header,
    read_tiff_tags,
    require_end,
    require_end_of_tiff,
)
from obbflow.data.images.orientation import Orientation
from obbflow.data.images.reading import (
    BROKEN,
    PILLOW_FORMATS,
    describe,
    find_driver,
    require_bands,
    unlimited_pixels,
)
from obbflow.data.progress import track

logger = logging.getLogger(__name__)

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp")

_THREADS = 4  # reading and hashing wait for the disk and let go of the interpreter lock
_PILLOW_BYTES = 4  # a px of RGB in Pillow


@dataclass(frozen=True)
class ImageFacts:
    """What is known of an image without its pixels.

    ``width`` and ``height`` are px as shown, ``bands`` the stored channels, ``dtype`` one sample
    as numpy names it, ``sha256`` the digest of the file's bytes, ``gsd`` metres a px where the
    file says where on earth it lies, else NaN.
    """

    width: int
    height: int
    bands: int
    dtype: str
    sha256: str
    gsd: float = math.nan


def is_image_name(name: str) -> bool:
    """Return whether a file of this name is taken for an image, by its ending in any case."""
    return name.lower().endswith(IMAGE_SUFFIXES)


def probe_images(
    paths: Sequence[Path], bands: Sequence[int] | None = None
) -> tuple[dict[Path, ImageFacts], dict[Path, str]]:
    """Return the facts of all images that are whole, and why each of the others is not.

    Args:
        paths: Image files; may be empty.
        bands: An image that lacks one of these cannot be used; counted from 1.

    Returns:
        Facts by path, and the reason by path of a file that is no image, ends too early or lacks
        a band.
    """
    facts: dict[Path, ImageFacts] = {}
    broken: dict[Path, str] = {}
    with unlimited_pixels() as limit, ThreadPoolExecutor(_THREADS) as threads:
        found = threads.map(lambda path: _probe(path, bands), paths)
        for path, result in track(zip(paths, found, strict=True), len(paths), "Reading images"):
            if isinstance(result, str):
                broken[path] = result
                continue
            facts[path], memory_bytes = result
            if limit is not None and facts[path].width * facts[path].height > limit:
                logger.warning(
                    "%s: %.1f megapixels, decoding it takes up to %.1f GB of memory",
                    path,
                    facts[path].width * facts[path].height / 1e6,
                    memory_bytes / 1e9,
                )
    return facts, broken


def _probe(path: Path, bands: Sequence[int] | None) -> tuple[ImageFacts, int] | str:
    """Return the facts of one image and the memory to decode it, or why it cannot be used."""
    try:
        driver = find_driver(path)
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if driver == "PNG":
            return _probe_png(path, digest, bands)
        if driver == "GTiff":
            return _probe_tiff(path, digest, bands)
        return _probe_with_pillow(path, digest, bands)
    except BROKEN as error:
        return describe(error)


def _probe_png(path: Path, digest: str, bands: Sequence[int] | None) -> tuple[ImageFacts, int]:
    header = read_png_header(path)
    require_bands(header.colours, bands)
    size = header.orientation.shown_size(header.width, header.height)
    decoded = header.width * header.height * header.bands * np.dtype(header.dtype).itemsize
    # GDAL holds the file's content and its decompressed rows beside the image.
    memory = 2 * decoded + path.stat().st_size
    return ImageFacts(*size, header.bands, header.dtype, digest), memory


def _probe_tiff(path: Path, digest: str, bands: Sequence[int] | None) -> tuple[ImageFacts, int]:
    with gdal.open_raster(path, "GTiff") as dataset:
        tags = read_tiff_tags(path)
        require_end_of_tiff(tags, path)
        require_bands(gdal.count_colours(dataset), bands)
        size = Orientation.of_tag(tags.get(ORIENTATION, 1)).shown_size(
            dataset.width, dataset.height
        )
        dtype = dataset.dtypes[0]
        bytes_a_px = dataset.count * np.dtype(dtype).itemsize
        cached = min(math.prod(size) * bytes_a_px, gdal.CACHE_MB * 2**20)
        memory = cached + math.prod(dataset.block_shapes[0]) * bytes_a_px
        return ImageFacts(*size, dataset.count, dtype, digest, measure_gsd(dataset)), memory


def _probe_with_pillow(
    path: Path, digest: str, bands: Sequence[int] | None
) -> tuple[ImageFacts, int]:
    with Image.open(path, formats=PILLOW_FORMATS) as image:
        require_end(image, path)
        require_bands(count_colours(image), bands)
        size = read_orientation(image).shown_size(*image.size)
        memory = math.prod(size) * _PILLOW_BYTES
        return ImageFacts(*size, len(image.getbands()), "uint8", digest), memory
