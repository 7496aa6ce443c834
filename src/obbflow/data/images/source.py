"""An image of any format as 8-bit RGB, part by part."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from obbflow.data.images.decoded import DecodedImage
from obbflow.data.images.orientation import Orientation
from obbflow.data.images.raster import Raster
from obbflow.data.images.reading import BROKEN, describe, find_driver
from obbflow.data.images.stretch import STRETCH_PERCENTILES
from obbflow.errors import DataError

_ROWS = 256  # decoded at once where nobody needs the pixels


class _Stored(Protocol):
    """An image in the orientation in which it is stored."""

    width: int
    height: int
    orientation: Orientation
    value_range: tuple[float, float] | None
    is_decoded: bool

    def read(self, x: int, y: int, width: int, height: int) -> NDArray[np.uint8]:
        """Return a part inside the image, (height, width, 1 or 3)."""
        ...

    def close(self) -> None:
        """Let go of file and memory."""
        ...


class PixelSource:
    """An open image; see ``open_image``.

    Attributes:
        width: Of the image as shown, px.
        height: The same.
        value_range: The sample values that become 0 and 255; None where samples have 8 bits and
            stay as they are. The first is above the second where the file's lowest value is white.
        is_decoded: Whether all of it is in memory; otherwise ``read`` decodes what it is asked for.
    """

    def __init__(self, path: Path, stored: _Stored) -> None:
        self._path, self._stored = path, stored
        self._orientation = stored.orientation
        self.width, self.height = self._orientation.shown_size(stored.width, stored.height)
        self.value_range = stored.value_range
        self.is_decoded = stored.is_decoded

    def read(
        self, x: int, y: int, width: int, height: int, out: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint8]:
        """Return a part of the image, black where it reaches beyond the right and bottom border.

        Args:
            x: Of the part's top left px, inside the image.
            y: The same.
            width: Of the part, px.
            height: The same.
            out: (height, width, 3) that the part is written into; None: a new array.

        Returns:
            (height, width, 3) RGB, an array of the caller's own: ``out`` if that is given.

        Raises:
            DataError: If the part cannot be decoded.
            ValueError: If it does not begin inside the image, or is empty.
        """
        if not (0 <= x < self.width and 0 <= y < self.height and width > 0 and height > 0):
            raise ValueError(
                f"a part of {width} x {height} px at ({x}, {y}) does not begin in the image of "
                f"{self.width} x {self.height} px"
            )
        inside = (x, y, min(width, self.width - x), min(height, self.height - y))
        try:
            stored = self._stored.read(
                *self._orientation.find_stored(inside, self.width, self.height)
            )
        except BROKEN as error:
            raise _broken(self._path, error) from error
        pixels = np.empty((height, width, 3), dtype=np.uint8) if out is None else out
        pixels[: inside[3], : inside[2]] = self._orientation.turn(stored)
        pixels[inside[3] :] = 0
        pixels[: inside[3], inside[2] :] = 0
        return pixels

    def require_decodable(self) -> None:
        """Decode what was not decoded when the image was opened.

        Raises:
            DataError: If that cannot be done.
        """
        if not self.is_decoded:
            for y in range(0, self.height, _ROWS):
                self.read(0, y, self.width, _ROWS)

    def close(self) -> None:
        """Let go of file and memory."""
        self._stored.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_image(
    path: Path,
    *,
    bands: Sequence[int] | None = None,
    stretch: tuple[float, float] = STRETCH_PERCENTILES,
) -> PixelSource:
    """Open an image to read parts of it as 8-bit RGB.

    A TIFF is decoded part by part, so that its size does not matter; other formats as a whole, now.
    Samples of more than 8 bits are stretched linearly between two percentiles of the chosen bands,
    computed now from a lattice of at least 300,000 px, without those that hold no data.

    Args:
        path: A file of one of ``IMAGE_SUFFIXES``.
        bands: Which become red, green and blue, or the one that becomes grey, counted from 1. Of
            a palette and CMYK the bands are those of its RGB. None: the first three that are not
            transparency, or the first of fewer.
        stretch: The two percentiles, 0 to 100.

    Returns:
        The image; close it, or use it as a context manager. It belongs to the thread that opened
        it: others open the file again.

    Raises:
        DataError: If the file is no image, ends too early or lacks one of ``bands``.
    """
    path = Path(path)
    try:
        driver = find_driver(path)
        stored: _Stored
        if driver is None:
            stored = DecodedImage(path, bands)
        else:
            stored = Raster(path, driver, bands, stretch)
        return PixelSource(path, stored)
    except BROKEN as error:
        raise _broken(path, error) from error


def decode_image(
    path: Path,
    *,
    bands: Sequence[int] | None = None,
    stretch: tuple[float, float] = STRETCH_PERCENTILES,
) -> NDArray[np.uint8]:
    """Return a whole image as (H, W, 3) RGB, 8 bits a channel; see ``open_image``.

    Raises:
        DataError: If the file is no image, ends too early or lacks one of ``bands``.
    """
    with open_image(path, bands=bands, stretch=stretch) as source:
        return source.read(0, 0, source.width, source.height)


def _broken(path: Path, error: BaseException) -> DataError:
    return DataError(f"{path}: {describe(error)}; replace or remove the image")
