"""The EXIF orientation: how an image is stored, and how it is shown."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Part = tuple[int, int, int, int]
"""x, y, width, height, px."""


@dataclass(frozen=True)
class Orientation:
    """How the stored image becomes the one that is shown.

    First x and y are exchanged if ``is_transposed``, then the result is mirrored.
    """

    is_transposed: bool
    flips_x: bool
    flips_y: bool

    @classmethod
    def of_tag(cls, value: int) -> "Orientation":
        """Return the meaning of an orientation tag, 1 to 8; any other value means upright.

        Source:
            TIFF 6.0, section 8, tag 274; Exif 2.3, 4.6.4.
        """
        return cls(value in {5, 6, 7, 8}, value in {2, 3, 6, 7}, value in {3, 4, 7, 8})

    @property
    def is_upright(self) -> bool:
        """Whether the image is shown as it is stored."""
        return not (self.is_transposed or self.flips_x or self.flips_y)

    def shown_size(self, width: int, height: int) -> tuple[int, int]:
        """Return width and height as shown of a stored image's."""
        return (height, width) if self.is_transposed else (width, height)

    def find_stored(self, part: Part, width: int, height: int) -> Part:
        """Return where a part of the shown image, which has this size, is stored."""
        x, y, part_width, part_height = part
        if self.flips_x:
            x = width - x - part_width
        if self.flips_y:
            y = height - y - part_height
        return (y, x, part_height, part_width) if self.is_transposed else (x, y, *part[2:])

    def turn(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return stored px (H, W, n) as shown, without copying them."""
        if self.is_transposed:
            pixels = pixels.swapaxes(0, 1)
        if self.flips_x:
            pixels = pixels[:, ::-1]
        return pixels[::-1] if self.flips_y else pixels
