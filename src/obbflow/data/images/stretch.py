"""Samples of any type on the scale 0 to 255."""

import numpy as np
from numpy.typing import NDArray

STRETCH_PERCENTILES = (0.1, 99.9)
"""Samples at and beyond these become 0 and 255, where there are more than 8 bits."""


def find_limits(
    samples: NDArray[np.generic], percentiles: tuple[float, float]
) -> tuple[float, float]:
    """Return the values of two percentiles, as the limits of ``stretch``.

    Args:
        samples: Any shape and type; what is not finite is left out.
        percentiles: The lower and the upper one, 0 to 100.

    Returns:
        (low, high); lowest and highest value where both percentiles are one value, (0, 1) where
        no sample is finite.
    """
    finite = samples[np.isfinite(samples)].astype(np.float64)
    if not finite.size:
        return 0.0, 1.0
    low, high = np.percentile(finite, percentiles)
    if not low < high:
        low, high = finite.min(), finite.max()
    return float(low), float(high)


def stretch(samples: NDArray[np.generic], black: float, white: float) -> NDArray[np.uint8]:
    """Return samples with ``black`` at 0 and ``white`` at 255, linear between and cut off beyond.

    Args:
        samples: Any shape and type; NaN becomes 0.
        black: Below ``white``, or above it in a negative. If both are equal, all is 0.
        white: See ``black``.

    Example:
        >>> stretch(np.array([0, 100, 200, 300, 400]), black=100, white=300).tolist()
        [0, 0, 128, 255, 255]
    """
    if black == white:
        return np.zeros(samples.shape, dtype=np.uint8)
    scaled = samples.astype(np.float64)
    scaled -= black
    scaled *= 255
    scaled /= white - black
    np.clip(scaled, 0, 255, out=scaled)
    np.nan_to_num(scaled, copy=False)
    return np.rint(scaled, out=scaled).astype(np.uint8)
