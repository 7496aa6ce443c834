"""Image files: the facts of their headers, their pixels as 8-bit RGB, and where on earth they lie.

Every image becomes three channels of 8 bits, in the way a person sees it: the EXIF orientation is
applied, a palette becomes its colours, CMYK becomes RGB, transparency is left out, of many bands
three are chosen, and px that hold the file's no-data value are black. Samples of more than 8 bits
are stretched linearly between two percentiles of the whole image, so all its tiles share one scale.

TIFF and PNG go through GDAL (rasterio), the other formats through Pillow.
"""

from obbflow.data.images.facts import IMAGE_SUFFIXES, ImageFacts, is_image_name, probe_images
from obbflow.data.images.georeference import Georeference, read_georeference
from obbflow.data.images.source import PixelSource, decode_image, open_image
from obbflow.data.images.stretch import STRETCH_PERCENTILES

__all__ = [
    "IMAGE_SUFFIXES",
    "STRETCH_PERCENTILES",
    "Georeference",
    "ImageFacts",
    "PixelSource",
    "decode_image",
    "is_image_name",
    "open_image",
    "probe_images",
    "read_georeference",
]
