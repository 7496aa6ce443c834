"""Pixels of TIFF and PNG: any samples and bands; of a TIFF only what is asked for is decoded.

Shapes: h, w of a part of the image; n bands that are read.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obbflow.data.images import gdal
from obbflow.data.images.headers import find_tiff_orientation, read_png_header
from obbflow.data.images.reading import require_bands
from obbflow.data.images.stretch import find_limits, stretch

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

Conversion = Callable[[NDArray[Any]], NDArray[np.uint8]]
"""From (h, w, n) samples to (h, w, 1 or 3)."""

_SAMPLED_PX = 300_000  # at least, that limits are computed from
_TABLE_BITS = 16  # up to which looking up all values once is faster than arithmetic


class Raster:
    """An open TIFF or a decoded PNG; ``read`` gives parts of it as it is stored."""

    def __init__(
        self, path: Path, driver: str, bands: Sequence[int] | None, percentiles: tuple[float, float]
    ) -> None:
        self._dataset = gdal.open_raster(path, driver)
        self.is_decoded = driver == "PNG"
        self.orientation = (
            read_png_header(path).orientation if self.is_decoded else find_tiff_orientation(path)
        )
        self.width, self.height = self._dataset.width, self._dataset.height
        require_bands(gdal.count_colours(self._dataset), bands)
        self.value_range: tuple[float, float] | None = None
        palette = gdal.read_palette(self._dataset)
        if palette is not None:
            self._samples = _Samples(self._dataset, (1,), driver)
            colours = palette if bands is None else palette[:, [band - 1 for band in bands]]
            self._convert = lambda samples: colours[samples[..., 0]]
            return
        self._samples = _Samples(self._dataset, bands or gdal.first_colours(self._dataset), driver)
        dtype = np.dtype(self._dataset.dtypes[0])
        if dtype == np.uint8:
            ends = (0.0, 2.0 ** gdal.bits_a_sample(self._dataset) - 1)
        else:
            ends = _find_range(self._samples, self.width, self.height, percentiles)
        black, white = ends[::-1] if gdal.is_negative(self._dataset) else ends
        self._convert = _make_conversion(dtype, black, white)
        if dtype != np.uint8:
            self.value_range = (black, white)

    def read(self, x: int, y: int, width: int, height: int) -> NDArray[np.uint8]:
        """Return a part inside the image, (height, width, 1 or 3)."""
        samples = self._samples.read(x, y, width, height)
        pixels = self._convert(samples)
        valid = self._samples.find_valid(samples, x, y)
        if valid is None:
            return pixels
        return np.where(valid.any(axis=2, keepdims=True), pixels, np.uint8(0))

    def close(self) -> None:
        """Close the file."""
        self._dataset.close()


class _Samples:
    """The samples of chosen bands in their own type, and which of them are data."""

    def __init__(self, dataset: "DatasetReader", bands: Sequence[int], driver: str) -> None:
        self._dataset = dataset
        self._bands = list(bands)
        self._whole: NDArray[Any] | None = None
        self._nodata, self._has_mask = None, False
        if driver == "PNG":
            # GDAL needs a third of the time for all bands of a whole image. What it takes for no
            # data in a PNG is a colour that is meant as transparent.
            whole = self._load(0, 0, dataset.width, dataset.height, list(dataset.indexes))
            self._whole = _pick(whole, self._bands)
        else:
            self._nodata, self._has_mask = gdal.find_nodata(dataset), gdal.has_mask(dataset)

    def read(self, x: int, y: int, width: int, height: int) -> NDArray[Any]:
        """Return a part inside the image, (h, w, n)."""
        if self._whole is not None:
            return self._whole[y : y + height, x : x + width]
        return self._load(x, y, width, height, self._bands)

    def find_valid(self, samples: NDArray[Any], x: int, y: int) -> NDArray[np.bool_] | None:
        """Return which samples are data, (h, w, n); None when all are.

        Args:
            samples: (h, w, n), what ``read`` returned.
            x: Where this part begins.
            y: The same.
        """
        valid = None if self._nodata is None else samples != self._nodata
        if self._has_mask:
            height, width = samples.shape[:2]
            with gdal.plain_errors():
                mask = self._dataset.read_masks(1, window=_window(x, y, width, height))
            shown = np.broadcast_to(mask[..., None] > 0, samples.shape)
            valid = shown if valid is None else valid & shown
        return valid

    def _load(self, x: int, y: int, width: int, height: int, bands: list[int]) -> NDArray[Any]:
        samples = np.empty((height, width, len(bands)), dtype=self._dataset.dtypes[0])
        with gdal.plain_errors():
            self._dataset.read(
                bands, window=_window(x, y, width, height), out=samples.transpose(2, 0, 1)
            )
        return samples


def _window(x: int, y: int, width: int, height: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return a part of an image as rasterio takes it: its rows and its columns."""
    return (y, y + height), (x, x + width)


def _pick(samples: NDArray[Any], bands: list[int]) -> NDArray[Any]:
    """Return these of all bands; the first ones without a copy."""
    if bands == list(range(1, len(bands) + 1)):
        return samples[..., : len(bands)]
    return samples[..., [band - 1 for band in bands]]


def _find_range(
    samples: _Samples, width: int, height: int, percentiles: tuple[float, float]
) -> tuple[float, float]:
    """Return the values of two percentiles, from every px or a lattice of them.

    One row after another is read: blocks of a TIFF that hold none of these rows are not decoded,
    and never are more than those of a row in memory.
    """
    step = max(1, int(np.sqrt(width * height / _SAMPLED_PX)))
    found = []
    for y in range(0, height, step):
        row = samples.read(0, y, width, 1)
        valid = samples.find_valid(row, 0, y)
        row = row[:, ::step]
        found.append(row.ravel() if valid is None else row[valid[:, ::step]])
    return find_limits(np.concatenate(found), percentiles)


def _make_conversion(dtype: np.dtype[Any], black: float, white: float) -> Conversion:
    """Return the function that makes 8 bits of samples, with these two at 0 and 255."""
    if dtype == np.uint8 and (black, white) == (0, 255):
        return lambda samples: samples.astype(np.uint8, copy=False)
    if dtype.kind == "f" or 8 * dtype.itemsize > _TABLE_BITS:
        return lambda samples: stretch(samples, black, white)
    index_type = np.dtype(f"u{dtype.itemsize}")
    values = np.arange(2 ** (8 * dtype.itemsize)).astype(index_type).view(dtype)
    table = stretch(values, black, white)
    return lambda samples: table[samples.view(index_type)]
