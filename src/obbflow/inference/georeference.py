"""Where on the earth the pixels of a GeoTIFF lie."""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import TiffImagePlugin, UnidentifiedImageError

logger = logging.getLogger(__name__)

_SUFFIXES = (".tif", ".tiff")
# Tags and keys of OGC GeoTIFF 1.1 (19-008r4)
_PIXEL_SCALE, _TIE_POINTS, _TRANSFORMATION, _KEYS = 33550, 33922, 34264, 34735
_MODEL_TYPE, _RASTER_TYPE, _GEODETIC_CRS, _PROJECTED_CRS = 1024, 1025, 2048, 3072
_GEOGRAPHIC, _PIXEL_IS_POINT = 2, 2
_EPSG_CODES = range(1024, 32767)  # 32767: described by the user, without a code
_ORIENTATION = 274


@dataclass(frozen=True)
class Georeference:
    """An affine map from px to map coordinates, and the coordinate reference system.

    Attributes:
        matrix: (2, 3) rows: map = matrix @ (x, y, 1); px as everywhere here: the first pixel
            covers [0, 1) x [0, 1).
        epsg: Code of the reference system, None when the file names none.
        is_geographic: Whether map coordinates are longitude and latitude, degrees.
    """

    matrix: NDArray[np.float64]
    epsg: int | None
    is_geographic: bool

    def to_map(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return points (..., 2), px, in map coordinates: (east, north) or (lon, lat)."""
        return np.asarray(points @ self.matrix[:, :2].T + self.matrix[:, 2])


def read_georeference(path: Path) -> Georeference | None:
    """Return where an image lies, None when it does not say.

    Args:
        path: An image file; only TIFFs can hold a georeference. Nothing is decoded.

    Returns:
        The map of the tie point and pixel scale, or of the transformation matrix. Several tie
        points without a scale (a warped image) are no affine map: None, with a warning.

    Source:
        OGC GeoTIFF 1.1 (19-008r4), annex B.6.
    """
    if path.suffix.lower() not in _SUFFIXES:
        return None
    try:
        with TiffImagePlugin.TiffImageFile(path) as image:
            tags = dict(image.tag_v2.items())
    except (UnidentifiedImageError, SyntaxError):  # another format under this ending
        return None
    matrix = _read_matrix(tags, path)
    if matrix is None:
        return None
    if tags.get(_ORIENTATION, 1) != 1:
        logger.warning("%s: turned by its orientation tag, its georeference is not used", path)
        return None
    keys = _read_keys(tags.get(_KEYS, ()))
    if keys.get(_RASTER_TYPE) == _PIXEL_IS_POINT:  # the tie point is the centre of a pixel
        matrix[:, 2] -= matrix[:, :2] @ (0.5, 0.5)
    is_geographic = keys.get(_MODEL_TYPE) == _GEOGRAPHIC
    code = keys.get(_GEODETIC_CRS if is_geographic else _PROJECTED_CRS)
    return Georeference(matrix, code if code in _EPSG_CODES else None, is_geographic)


def _read_matrix(tags: dict[int, object], path: Path) -> NDArray[np.float64] | None:
    """Return the (2, 3) map of raster space to map coordinates."""
    if _TRANSFORMATION in tags:
        full = np.array(tags[_TRANSFORMATION], dtype=np.float64).reshape(4, 4)
        return full[:2][:, [0, 1, 3]]
    if _TIE_POINTS not in tags:
        return None
    if _PIXEL_SCALE not in tags:
        logger.warning("%s: has tie points without a pixel scale, they are not used", path)
        return None
    scale_x, scale_y = np.array(tags[_PIXEL_SCALE], dtype=np.float64)[:2]
    i, j, _, x, y, _ = np.array(tags[_TIE_POINTS], dtype=np.float64)[:6]
    return np.array([[scale_x, 0.0, x - scale_x * i], [0.0, -scale_y, y + scale_y * j]])


def _read_keys(directory: object) -> dict[int, int]:
    """Return the keys of a GeoKeyDirectory whose values are short integers."""
    entries = np.array(directory, dtype=np.int64).reshape(-1, 4)[1:]  # the first is the header
    return {int(key): int(value) for key, place, _, value in entries if place == 0}
