"""JPEG, BMP and WebP through Pillow: decoded once, as a whole."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from obbflow.data.images.headers import count_colours, read_orientation
from obbflow.data.images.reading import PILLOW_FORMATS, require_bands, unlimited_pixels

_GREY = ("1", "L", "LA")


class DecodedImage:
    """The pixels of an image; ``read`` gives parts of it as it is stored."""

    is_decoded = True
    value_range: tuple[float, float] | None = None  # these formats have 8 bits a sample

    def __init__(self, path: Path, bands: Sequence[int] | None) -> None:
        with unlimited_pixels(), Image.open(path, formats=PILLOW_FORMATS) as image:
            self.orientation = read_orientation(image)
            require_bands(count_colours(image), bands)
            image.load()
            self._image = _choose_bands(image, bands)
        self.width, self.height = self._image.size

    def read(self, x: int, y: int, width: int, height: int) -> NDArray[np.uint8]:
        """Return a part inside the image, (height, width, 1 or 3)."""
        # An array of the whole image would be a second one.
        part = self._image.crop((x, y, x + width, y + height))
        return np.asarray(part).reshape(height, width, -1)

    def close(self) -> None:
        """Let go of the pixels."""
        self._image.close()


def _choose_bands(image: Image.Image, bands: Sequence[int] | None) -> Image.Image:
    """Return an image of mode "L" or "RGB"."""
    if bands is None:
        mode = "L" if image.mode in _GREY else "RGB"
        # convert would copy even an image of this mode
        return image if image.mode == mode else image.convert(mode)
    if image.mode not in {"L", "LA", "RGB", "RGBA"}:
        image = image.convert("L" if image.mode in _GREY else "RGB")
    chosen = [image.getchannel(band - 1) for band in bands]
    return chosen[0] if len(chosen) == 1 else Image.merge("RGB", chosen)
