"""What headers say: how an image is shown, how many colours it has, whether the file is whole."""

import mmap
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, TiffImagePlugin

from obbflow.data.images.orientation import Orientation
from obbflow.data.images.reading import unlimited_pixels

ORIENTATION = 274
"""The tag of TIFF and EXIF."""

_TIFF_OFFSETS_AND_COUNTS = ((273, 279), (324, 325))  # of strips, of tiles
_PNG_BANDS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
_PNG_PALETTE = 3
_RGB = 3


class PngHeader(NamedTuple):
    """What a PNG says of itself; ``colours`` counts those of the palette, ``bands`` its indices."""

    width: int
    height: int
    bands: int
    colours: int
    dtype: str
    orientation: Orientation


def read_png_header(path: Path) -> PngHeader:
    """Return the header of a PNG, after a walk over all its chunks.

    Raises:
        OSError: If a chunk is missing or not as its checksum says.
        SyntaxError: The same.
    """
    with path.open("rb") as stream:
        start = stream.read(26)
    with unlimited_pixels(), Image.open(path, formats=["PNG"]) as image:
        orientation = read_orientation(image)
        image.verify()
    width, height, bits, colour_type = struct.unpack(">IIBB", start[16:])
    bands = _PNG_BANDS[colour_type]
    colours = _RGB if colour_type == _PNG_PALETTE else bands
    dtype = "uint16" if bits == 16 else "uint8"
    return PngHeader(width, height, bands, colours, dtype, orientation)


def read_tiff_tags(path: Path) -> dict[int, Any]:
    """Return the tags of a TIFF's first image.

    GDAL does not tell its orientation and where its strips lie. Pillow's parser knows no
    big-endian BigTIFF: no tags are returned of it.
    """
    with path.open("rb") as stream:
        header = stream.read(8)
        if header.startswith(b"MM\0+"):
            return {}
        if header.startswith(b"II+\0"):
            header += stream.read(8)
        directory = TiffImagePlugin.ImageFileDirectory_v2(header)
        stream.seek(directory.next)
        directory.load(stream)
        return dict(directory)


def find_tiff_orientation(path: Path) -> Orientation:
    """Return how a TIFF is shown."""
    return Orientation.of_tag(read_tiff_tags(path).get(ORIENTATION, 1))


def read_orientation(image: Image.Image) -> Orientation:
    """Return how an image is shown that was opened and not yet decoded."""
    if image.format == "PNG" and "exif" not in image.info:  # getexif would decode the pixels
        return Orientation.of_tag(1)
    try:
        return Orientation.of_tag(image.getexif().get(ORIENTATION, 1))
    except SyntaxError:  # of an EXIF block that is none; the pixels do not depend on it
        return Orientation.of_tag(1)


def count_colours(image: Image.Image) -> int:
    """Return the bands to choose from: as stored, for a palette and CMYK those of its RGB."""
    return _RGB if image.mode in {"P", "PA", "CMYK"} else len(image.getbands())


def require_end_of_tiff(tags: Mapping[int, Any], path: Path) -> None:
    """Raise if a strip or tile of a TIFF lies beyond the end of its file.

    Raises:
        OSError: Saying how long the file is.
    """
    ends = [0]
    for offset_tag, count_tag in _TIFF_OFFSETS_AND_COUNTS:
        offsets, counts = _as_tuple(tags.get(offset_tag)), _as_tuple(tags.get(count_tag))
        ends.extend(offset + count for offset, count in zip(offsets, counts, strict=False))
    _require_size(path, max(ends))


def require_end(image: Image.Image, path: Path) -> None:
    """Raise if a JPEG, BMP or WebP was cut off, without decoding it.

    Raises:
        OSError: Saying how long the file is.
    """
    if image.format in {"JPEG", "MPO"}:
        with (
            path.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            # Scans follow the last SOS marker; an embedded thumbnail comes before it.
            is_whole = content.find(b"\xff\xd9", content.rfind(b"\xff\xda")) > 0
        _require_size(path, 0 if is_whole else path.stat().st_size + 1)
        return
    with path.open("rb") as stream:
        header = stream.read(12)
    is_bmp = image.format == "BMP"
    place = slice(2, 6) if is_bmp else slice(4, 8)
    _require_size(path, int.from_bytes(header[place], "little") + (0 if is_bmp else 8))


def _require_size(path: Path, needed_bytes: int) -> None:
    size_bytes = path.stat().st_size
    if size_bytes < needed_bytes:
        raise OSError(f"the file ends after {size_bytes:,} bytes, before its image does")


def _as_tuple(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Iterable) else (int(str(value)),)
