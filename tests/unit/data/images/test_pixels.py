"""Pixels of every kind of file, compared with what was written into it."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rasterio
from PIL import Image, ImageOps
from rasterio.enums import ColorInterp

from obbflow.data.images import decode_image, open_image
from obbflow.errors import DataError

HEIGHT, WIDTH = 50, 70
ORIENTATION = 0x0112
SIXTEEN = {"tiled": True, "blockxsize": 16, "blockysize": 16}


def pattern(bands=3, dtype="uint8", scale=1):
    """Return (HEIGHT, WIDTH, bands): smooth, and different in every px and band."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    planes = [
        (3 * x + y, 4 * y + x // 2, 250 - 2 * x - y)[band % 3] + band // 3 for band in range(bands)
    ]
    return (np.stack(planes, axis=2) * scale).astype(dtype)


def write_tiff(path, samples, **options):
    """Write (H, W, bands) samples."""
    height, width, count = samples.shape
    profile = {"driver": "GTiff", "width": width, "height": height, "count": count}
    with rasterio.open(path, "w", **profile, dtype=samples.dtype, **options) as file:
        file.write(samples.transpose(2, 0, 1))
    return path


def write_png16(path, samples):
    height, width, count = samples.shape
    profile = {"driver": "PNG", "width": width, "height": height, "count": count}
    with rasterio.open(path, "w", **profile, dtype="uint16") as file:
        file.write(samples.transpose(2, 0, 1))
    return path


def require_same_in_parts(path, whole, **options):
    """Compare windows, also beyond the border, with the whole image."""
    height, width = whole.shape[:2]
    with open_image(path, **options) as source:
        assert (source.width, source.height) == (width, height)
        for x, y, w, h in [(0, 0, 20, 15), (13, 17, 16, 16), (width - 9, height - 7, 30, 20)]:
            expected = np.zeros((h, w, 3), dtype=np.uint8)
            inside = whole[y : y + h, x : x + w]
            expected[: inside.shape[0], : inside.shape[1]] = inside
            part = source.read(x, y, w, h)
            np.testing.assert_array_equal(part, expected)
            assert part.flags.c_contiguous
            assert part.flags.writeable


COMPRESSIONS = ["none", "lzw", "deflate", "packbits", "zstd", "lzma"]
LAYOUTS = {
    "strips": {},
    "tiles": SIXTEEN,
    "one strip": {"blockysize": HEIGHT},
    "planes": {"interleave": "band"},
    "tiled planes": {"interleave": "band", **SIXTEEN},
}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiff_of_every_layout_and_compression_is_read_exactly(tmp_path, compression, layout):
    path = write_tiff(tmp_path / "a.tif", pattern(), compress=compression, **LAYOUTS[layout])
    np.testing.assert_array_equal(decode_image(path), pattern())
    require_same_in_parts(path, pattern())


@pytest.mark.parametrize(
    "options",
    [
        {"BIGTIFF": "YES"},
        {"ENDIANNESS": "BIG"},
        {"BIGTIFF": "YES", "ENDIANNESS": "BIG"},
        {"compress": "deflate", "predictor": 2},
    ],
    ids=["BigTIFF", "big-endian", "big-endian BigTIFF", "predictor"],
)
def test_variants_of_tiff_are_read_exactly(tmp_path, options):
    path = write_tiff(tmp_path / "a.tif", pattern(), **options)
    np.testing.assert_array_equal(decode_image(path), pattern())


@pytest.mark.parametrize("options", [{"photometric": "ycbcr"}, {}], ids=["YCbCr", "RGB"])
def test_jpeg_inside_a_tiff_is_close(tmp_path, options):
    path = write_tiff(
        tmp_path / "a.tif", pattern(), compress="jpeg", jpeg_quality=95, **SIXTEEN, **options
    )
    difference = np.abs(decode_image(path).astype(int) - pattern())
    assert difference.mean() < 3  # what JPEG loses of a gradient
    require_same_in_parts(path, decode_image(path))


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".webp", ".tif"])
def test_colours_of_lossless_files_are_exact(tmp_path, suffix):
    options = {"lossless": True} if suffix == ".webp" else {}
    Image.fromarray(pattern()).save(tmp_path / f"a{suffix}", **options)
    np.testing.assert_array_equal(decode_image(tmp_path / f"a{suffix}"), pattern())
    require_same_in_parts(tmp_path / f"a{suffix}", pattern())


@pytest.mark.parametrize("suffix", [".jpg", ".webp"])
def test_colours_of_lossy_files_are_close(tmp_path, suffix):
    Image.fromarray(pattern()).save(tmp_path / f"a{suffix}", quality=95)
    decoded = decode_image(tmp_path / f"a{suffix}")
    assert np.abs(decoded.astype(int) - pattern()).mean() < 3
    require_same_in_parts(tmp_path / f"a{suffix}", decoded)


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif"])
@pytest.mark.parametrize("mode", ["1", "L"])
def test_grey_gives_three_equal_channels(tmp_path, suffix, mode):
    image = Image.fromarray(pattern()[..., 0]).convert(mode)
    image.save(tmp_path / f"a{suffix}")
    expected = np.asarray(image.convert("L"))
    assert len(np.unique(expected)) > 1
    decoded = decode_image(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(decoded, np.dstack([expected] * 3))
    require_same_in_parts(tmp_path / f"a{suffix}", decoded)


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif"])
def test_palette_becomes_its_colours(tmp_path, suffix):
    image = Image.fromarray(pattern()).quantize(50)
    image.save(tmp_path / f"a{suffix}")
    expected = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(decode_image(tmp_path / f"a{suffix}"), expected)
    swapped = decode_image(tmp_path / f"a{suffix}", bands=(3, 1, 2))
    np.testing.assert_array_equal(swapped, expected[..., [2, 0, 1]])


@pytest.mark.parametrize("suffix", [".png", ".tif", ".webp"])
@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_transparency_is_left_out(tmp_path, suffix, mode):
    image = Image.fromarray(pattern()).convert(mode)
    image.putalpha(Image.fromarray(pattern()[..., 1] // 128 * 255))
    options = {"lossless": True, "exact": True} if suffix == ".webp" else {}
    image.save(tmp_path / f"a{suffix}", **options)
    opaque = image.convert(mode[:-1]).convert("RGB")
    np.testing.assert_array_equal(decode_image(tmp_path / f"a{suffix}"), np.asarray(opaque))


def test_a_transparent_colour_of_a_png_stays_visible(tmp_path):
    image = Image.fromarray(pattern())
    image.save(tmp_path / "a.png", transparency=tuple(pattern()[5, 5].tolist()))
    np.testing.assert_array_equal(decode_image(tmp_path / "a.png"), pattern())


@pytest.mark.parametrize("suffix", [".jpg", ".tif"])
def test_cmyk_becomes_its_colours(tmp_path, suffix):
    image = Image.fromarray(pattern()).convert("CMYK")
    image.save(tmp_path / f"a{suffix}", quality=95)
    decoded = decode_image(tmp_path / f"a{suffix}")
    assert np.abs(decoded.astype(int) - pattern()).mean() < 3
    swapped = decode_image(tmp_path / f"a{suffix}", bands=(2, 2, 1))
    np.testing.assert_array_equal(swapped, decoded[..., [1, 1, 0]])


def test_grey_tiff_where_0_is_white_is_a_negative(tmp_path):
    stored = pattern()[..., :1]
    path = write_tiff(tmp_path / "a.tif", stored, photometric="MINISWHITE")
    np.testing.assert_array_equal(decode_image(path)[..., :1], 255 - stored)
    Image.fromarray(stored[..., 0]).save(tmp_path / "b.tif", tiffinfo={262: 0})  # turns it itself
    np.testing.assert_array_equal(decode_image(tmp_path / "b.tif")[..., :1], stored)


def test_deep_tiff_where_0_is_white_is_a_negative(tmp_path):
    stored = pattern(1, "uint16", 100)
    path = write_tiff(tmp_path / "a.tif", stored, photometric="MINISWHITE")
    with open_image(path, stretch=(0, 100)) as source:
        assert source.value_range == (stored.max(), stored.min())
        pixels = source.read(0, 0, WIDTH, HEIGHT)[..., :1]
    expected = np.rint((stored.max() - stored.astype(float)) * 255 / np.ptp(stored))
    assert np.abs(pixels - expected).max() <= 1  # halves are rounded either way


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_fewer_than_8_bits_use_the_whole_range(tmp_path, bits):
    stored = (pattern()[..., :1] % 2**bits).astype("uint8")
    path = write_tiff(tmp_path / "a.tif", stored, NBITS=bits)
    expected = np.rint(stored * (255 / (2**bits - 1)))
    np.testing.assert_array_equal(decode_image(path)[..., :1], expected)


@pytest.mark.parametrize(
    ("write", "suffix"), [(write_tiff, ".tif"), (write_png16, ".png")], ids=["tif", "png"]
)
def test_bands_are_chosen_by_number(tmp_path, write, suffix):
    stored = pattern(4, "uint16", 100) if suffix == ".png" else pattern(5)
    path = write(tmp_path / f"a{suffix}", stored)
    stretch = (0, 100)
    first = decode_image(path, stretch=stretch)
    np.testing.assert_array_equal(first, decode_image(path, bands=(1, 2, 3), stretch=stretch))
    turned = decode_image(path, bands=(3, 2, 1), stretch=stretch)
    np.testing.assert_array_equal(turned, first[..., ::-1])
    if suffix == ".tif":
        np.testing.assert_array_equal(decode_image(path, bands=(5, 1, 4)), stored[..., [4, 0, 3]])
        grey = decode_image(path, bands=(5,))
        np.testing.assert_array_equal(grey, np.repeat(stored[..., 4:], 3, axis=2))
        require_same_in_parts(path, stored[..., [4, 0, 3]], bands=(5, 1, 4))


@pytest.mark.parametrize("suffix", [".png", ".webp"])
def test_a_fourth_band_stored_as_transparency_can_be_chosen(tmp_path, suffix):
    image = Image.fromarray(pattern())
    image.putalpha(Image.fromarray(pattern()[..., 1]))
    image.save(tmp_path / f"a{suffix}", lossless=True, exact=True)
    chosen = decode_image(tmp_path / f"a{suffix}", bands=(4, 1, 2))
    np.testing.assert_array_equal(chosen, pattern()[..., [1, 0, 1]])


def test_two_bands_without_transparency_give_the_first_as_grey(tmp_path):
    path = write_tiff(tmp_path / "a.tif", pattern(2), photometric="minisblack", alpha="no")
    expected = np.repeat(pattern(2)[..., :1], 3, axis=2)
    np.testing.assert_array_equal(decode_image(path), expected)


def test_transparency_does_not_count_as_one_of_three_bands(tmp_path):
    path = write_tiff(tmp_path / "a.tif", pattern(3), photometric="minisblack")
    with rasterio.open(path, "r+") as file:
        file.colorinterp = [ColorInterp.gray, ColorInterp.undefined, ColorInterp.alpha]
    expected = np.repeat(pattern(3)[..., :1], 3, axis=2)
    np.testing.assert_array_equal(decode_image(path), expected)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif"])
def test_a_missing_band_is_named(tmp_path, suffix):
    Image.fromarray(pattern()).save(tmp_path / f"a{suffix}")
    with pytest.raises(DataError, match=r"a\.\w+: .*dataset.bands asks for band 4, .* has 3"):
        decode_image(tmp_path / f"a{suffix}", bands=(4, 1, 2))


def turn(pixels, value):
    """Return px as Pillow turns them, whose code is another."""
    image = Image.fromarray(pixels)
    image.getexif()[ORIENTATION] = value
    return np.asarray(ImageOps.exif_transpose(image))


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("suffix", [".png", ".tif", ".webp", ".jpg"])
def test_orientation_is_applied_once_to_all_parts(tmp_path, suffix, value):
    exif = Image.Exif()
    exif[ORIENTATION] = value
    path = tmp_path / f"a{suffix}"
    Image.fromarray(pattern()).save(path, exif=exif, lossless=True, quality=100)
    expected = turn(pattern(), value)
    decoded = decode_image(path)
    if suffix == ".jpg":
        assert np.abs(decoded.astype(int) - expected).mean() < 2  # what JPEG loses
        expected = decoded
    np.testing.assert_array_equal(decoded, expected)
    require_same_in_parts(path, expected)


def test_an_orientation_that_there_is_not_means_upright(tmp_path):
    exif = Image.Exif()
    exif[ORIENTATION] = 11
    Image.fromarray(pattern()).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(decode_image(tmp_path / "a.png"), pattern())


@pytest.mark.parametrize("suffix", [".png", ".webp", ".jpg"])
def test_an_exif_block_that_is_none_means_upright(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    Image.fromarray(pattern()).save(path, exif=b"Exif\0\0nothing", lossless=True, quality=95)
    assert np.abs(decode_image(path).astype(int) - pattern()).mean() < 3  # what JPEG loses


@pytest.mark.parametrize(
    "name",
    [
        "Überflug 3 (1).tif",
        "日本 語.png",
        "a:b?c=1#d.tif",
        "zip!x.tif",
        'it\'s "x" %s.jpg',
        "-o.tif",
    ],
)
def test_awkward_names_are_read(tmp_path, name):
    Image.fromarray(pattern()).save(tmp_path / name, quality=95)
    assert np.abs(decode_image(tmp_path / name).astype(int) - pattern()).mean() < 3


def test_contents_count_and_not_the_ending(tmp_path):
    Image.fromarray(pattern()).save(tmp_path / "a.tif")
    (tmp_path / "a.tif").rename(tmp_path / "a.png")
    Image.fromarray(pattern()).save(tmp_path / "b.bmp")
    (tmp_path / "b.bmp").rename(tmp_path / "b.tif")
    for name in ("a.png", "b.tif"):
        np.testing.assert_array_equal(decode_image(tmp_path / name), pattern())


@pytest.mark.parametrize("suffix", [".png", ".tif"])
@pytest.mark.parametrize("part", [(-1, 0, 5, 5), (0, HEIGHT, 5, 5), (WIDTH, 0, 5, 5), (0, 0, 0, 5)])
def test_a_part_that_begins_outside_is_a_mistake_of_the_caller(tmp_path, suffix, part):
    Image.fromarray(pattern()).save(tmp_path / f"a{suffix}")
    with (
        pytest.raises(ValueError, match="does not begin in the image of 70 x 50 px"),
        open_image(tmp_path / f"a{suffix}") as source,
    ):
        source.read(*part)


def test_a_file_can_be_read_by_many_threads_at_once(tmp_path):
    path = write_tiff(tmp_path / "a.tif", pattern(), compress="deflate", **SIXTEEN)

    def read(number):
        with open_image(path) as source:
            return source.read(number, 0, 10, HEIGHT)

    with ThreadPoolExecutor(8) as threads:
        for number, part in enumerate(threads.map(read, range(60))):
            np.testing.assert_array_equal(part, pattern()[:, number : number + 10])
