"""TIFF and PNG files through GDAL (rasterio), which is imported when the first one is opened."""

import contextlib
import functools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

CACHE_MB = 512
"""Memory for decoded blocks of one process, or of all that cut tiles together.

GDAL by itself would take 5 % of the machine's, in each process.
"""

_CACHE_KEY = "GDAL_CACHEMAX"  # in MB; as an environment variable it is the user's
_LEAST_CACHE_MB = 128  # holds the blocks below a row of tiles of an image 30,000 px wide

_RGB = 3
_STRUCTURE = "IMAGE_STRUCTURE"  # GDAL's name for how a file is laid out


def open_raster(path: Path, driver: str) -> "DatasetReader":
    """Return the open file; it belongs to this thread.

    CMYK, CIELab and YCbCr of 8 bits come out of GDAL as RGB and alpha.

    Args:
        path: The file.
        driver: GDAL's name of its format.

    Raises:
        OSError: If it cannot be read.
        ValueError: If its samples are of a kind that cannot be shown.
    """
    _import_rasterio()
    import rasterio
    from rasterio.enums import ColorInterp

    with plain_errors():
        dataset = rasterio.open(path, driver=driver)
    if np.dtype(dataset.dtypes[0]).kind == "c":
        raise ValueError("its samples are complex numbers")
    if dataset.colorinterp[0] == ColorInterp.cyan:
        raise ValueError("it is CMYK with more than 8 bits a sample; save it as RGB")
    return dataset


def share_cache(processes: int) -> None:
    """Take a share of ``CACHE_MB`` only, in a process that has opened no raster yet.

    Args:
        processes: Number of those at work at once. Beyond four each takes a quarter all the same:
            with less, blocks would be decoded again for every tile that shows a part of them.
    """
    os.environ.setdefault(_CACHE_KEY, str(max(_LEAST_CACHE_MB, CACHE_MB // processes)))


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Raise what GDAL reports as an OSError with its first cause as the message."""
    from rasterio._err import CPLE_BaseError
    from rasterio.errors import RasterioError

    try:
        yield
    except (RasterioError, CPLE_BaseError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise OSError(str(cause)) from error


def count_colours(dataset: "DatasetReader") -> int:
    """Return the bands to choose from: as stored, or those of the palette."""
    from rasterio.enums import ColorInterp

    return _RGB if dataset.colorinterp[0] == ColorInterp.palette else dataset.count


def read_palette(dataset: "DatasetReader") -> NDArray[np.uint8] | None:
    """Return the colours of an image's values, (values, 3); None when it has no palette."""
    from rasterio.enums import ColorInterp

    if dataset.colorinterp[0] != ColorInterp.palette:
        return None
    colours = np.zeros((np.iinfo(dataset.dtypes[0]).max + 1, _RGB), dtype=np.uint8)
    for value, colour in dataset.colormap(1).items():
        colours[value] = colour[:_RGB]
    return colours


def first_colours(dataset: "DatasetReader") -> tuple[int, ...]:
    """Return the first three bands, or the first of fewer; transparency does not count."""
    from rasterio.enums import ColorInterp

    kinds = enumerate(dataset.colorinterp, start=1)
    bands = [band for band, kind in kinds if kind != ColorInterp.alpha]
    return tuple(bands[:_RGB] if len(bands) >= _RGB else bands[:1])


def find_nodata(dataset: "DatasetReader") -> float | None:
    """Return the value that means no data, None when there is none or no sample can have it."""
    value: float | None = dataset.nodata
    if value is None or np.dtype(dataset.dtypes[0]).kind == "f" or not value.is_integer():
        return value
    return int(value)  # quicker to compare with


def has_mask(dataset: "DatasetReader") -> bool:
    """Return whether the file says of each px if it is data, by other means than transparency."""
    from rasterio.enums import MaskFlags

    return list(dataset.mask_flag_enums[0]) == [MaskFlags.per_dataset]


def bits_a_sample(dataset: "DatasetReader") -> int:
    """Return the bits that are stored, which can be fewer than those of the type."""
    stored = dataset.tags(1, ns=_STRUCTURE).get("NBITS")
    return int(stored or 8 * np.dtype(dataset.dtypes[0]).itemsize)


def is_negative(dataset: "DatasetReader") -> bool:
    """Return whether the lowest value is white; GDAL makes a palette of some of these images."""
    return dataset.tags(ns=_STRUCTURE).get("MINISWHITE") == "YES"


@functools.cache
def _import_rasterio() -> None:
    """Import it with our settings: it takes a quarter of a second and is often not needed."""
    from rasterio.env import set_gdal_config
    from rasterio.errors import NotGeoreferencedWarning

    if _CACHE_KEY not in os.environ:
        # Not in the environment, which the processes of this one would inherit. Here in bytes.
        set_gdal_config(_CACHE_KEY, CACHE_MB * 2**20)
    warnings.filterwarnings("ignore", category=NotGeoreferencedWarning)  # most images
