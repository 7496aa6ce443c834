"""Where on the earth the pixels of a GeoTIFF lie."""

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from obbflow.data.images import gdal
from obbflow.data.images.headers import find_tiff_orientation
from obbflow.data.images.reading import find_driver

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

logger = logging.getLogger(__name__)

_SUFFIXES = (".tif", ".tiff")
_WGS84 = "EPSG:4326"


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
        path: An image file; only TIFFs are asked, and a world file beside one. Nothing is decoded.

    Returns:
        The affine map. Several tie points without a scale (a warped image) are none: None, with a
        warning, as for an image that its orientation tag turns.

    Raises:
        OSError: If the file cannot be read.
    """
    if path.suffix.lower() not in _SUFFIXES or find_driver(path) != "GTiff":
        return None
    with gdal.open_raster(path, "GTiff") as dataset:
        if dataset.transform.is_identity:
            if dataset.gcps[0]:
                logger.warning("%s: has tie points without a pixel scale, they are not used", path)
            return None
        if not find_tiff_orientation(path).is_upright:
            logger.warning("%s: turned by its orientation tag, its georeference is not used", path)
            return None
        crs = dataset.crs
        if crs is None:
            return Georeference(_matrix(dataset), None, is_geographic=False)
        return Georeference(_matrix(dataset), crs.to_epsg(), crs.is_geographic)


def measure_gsd(dataset: "DatasetReader") -> float:
    """Return the side of a pixel on the ground at the image's centre, metres.

    It is measured on the ellipsoid, whatever the units of the map are: 1 px of a map in degrees
    has metres too, and those of Web Mercator, which grow towards the poles, are true ones. It is
    the root of the area for px that are no squares.

    Args:
        dataset: An open file.

    Returns:
        NaN when the file does not say where it lies, or in which reference system.
    """
    from rasterio.errors import CRSError
    from rasterio.warp import transform

    if dataset.crs is None or dataset.transform.is_identity:
        return math.nan
    x, y = dataset.width / 2, dataset.height / 2
    px = np.array([[x, y, 1], [x + 1, y, 1], [x, y + 1, 1]])  # the centre, one px right, one down
    east, north = _matrix(dataset) @ px.T
    try:
        with gdal.plain_errors():
            (lon,), (lat,) = transform(dataset.crs, _WGS84, east[:1], north[:1])
            around = f"+proj=aeqd +datum=WGS84 +lon_0={lon} +lat_0={lat}"
            metres = np.array(transform(dataset.crs, around, east, north))
    except (OSError, CRSError) as error:
        logger.warning("%s: metres a px are not known, %s", dataset.name, error)
        return math.nan
    area = abs(np.linalg.det(metres[:, 1:] - metres[:, :1]))
    return math.sqrt(area) if math.isfinite(area) else math.nan


def _matrix(dataset: "DatasetReader") -> NDArray[np.float64]:
    """Return the (2, 3) map of px to map coordinates."""
    return np.array(dataset.transform[:6], dtype=np.float64).reshape(2, 3)
