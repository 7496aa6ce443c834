"""Samples of more than 8 bits, and px without data."""

import math
import tracemalloc

import numpy as np
import pytest
import rasterio
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, TiffImagePlugin

from obbflow.data.images import decode_image, open_image
from obbflow.data.images.stretch import find_limits, stretch

NODATA, ASCII = 42113, 2  # the tag of GDAL, the type of its value
RAMP = np.linspace(300, 1300, 10_000).reshape(100, 100, 1)


def write(path, samples, driver="GTiff", mask=None, **options):
    """Write (H, W, bands) samples."""
    height, width, count = samples.shape
    profile = {"driver": driver, "width": width, "height": height, "count": count}
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(path, "w", **profile, dtype=samples.dtype, **options) as file,
    ):
        file.write(samples.transpose(2, 0, 1))
        if mask is not None:
            file.write_mask(mask)
    return path


def open_range(path, **options):
    with open_image(path, **options) as source:
        return source.value_range


@pytest.mark.parametrize(
    "dtype", ["uint16", "int16", "uint32", "int32", "float32", "float64", "int64"]
)
def test_samples_of_any_type_are_stretched_over_the_whole_range(tmp_path, dtype):
    offset = -2000 if dtype.startswith(("int", "float")) else 0
    path = write(tmp_path / "a.tif", (RAMP + offset).astype(dtype))
    # the 0.1 and 99.9 percentiles of a ramp of 1000 steps
    assert open_range(path) == pytest.approx((301 + offset, 1299 + offset), abs=1)
    pixels = decode_image(path)
    assert (pixels == pixels[..., :1]).all()
    expected = ((RAMP[..., 0] - 301) * 255 / 998).clip(0, 255)
    assert np.abs(pixels[..., 0] - expected).max() < 1  # rounding


def test_int8_is_stretched_too(tmp_path):
    samples = np.arange(-100, 100, dtype="int8").reshape(10, 20, 1)
    pixels = decode_image(write(tmp_path / "a.tif", samples), stretch=(0, 100))
    expected = np.rint((samples.astype(float) + 100) * 255 / 199)
    np.testing.assert_array_equal(pixels[..., :1], expected)


@pytest.mark.parametrize("bands", [1, 3])
def test_limits_do_not_depend_on_file_format_and_layout(tmp_path, bands):
    samples = np.random.default_rng(0).integers(0, 4000, (500, 600, bands)).astype("uint16")
    files = [
        write(tmp_path / "a.tif", samples, compress="lzw"),
        write(tmp_path / "b.tif", samples, tiled=True, blockxsize=64, blockysize=128),
        write(tmp_path / "c.tif", samples, interleave="band"),
        write(tmp_path / "d.png", samples, driver="PNG", ZLEVEL=1),
    ]
    expected = find_limits(samples, (0.1, 99.9))  # all samples are looked at
    assert [open_range(path) for path in files] == [expected] * 4
    first = decode_image(files[0])
    for path in files[1:]:
        np.testing.assert_array_equal(decode_image(path), first)


def test_a_large_image_gives_limits_from_a_lattice_of_all_of_it(tmp_path):
    rows = np.linspace(0, 60_000, 4200, dtype="uint16")
    samples = np.repeat(rows[:, None, None], 1000, axis=1)  # brightest at its end
    low, high = open_range(write(tmp_path / "a.tif", samples), stretch=(1, 99))
    assert (low, high) == pytest.approx((600, 59_400), rel=0.01)


def test_colours_share_one_scale(tmp_path):
    samples = np.concatenate([RAMP, RAMP + 1000, RAMP + 2000], axis=2).astype("uint16")
    path = write(tmp_path / "a.tif", samples)
    assert open_range(path, stretch=(0, 100)) == (300, 3300)
    assert open_range(path, bands=(2,), stretch=(0, 100)) == (1300, 2300)


def test_all_parts_share_the_scale_of_the_whole(tmp_path):
    path = write(tmp_path / "a.tif", RAMP.astype("uint16"), blockysize=8)
    whole = decode_image(path)
    with open_image(path) as source:
        parts = [source.read(0, y, 100, 25) for y in range(0, 100, 25)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert whole.max() == 255
    assert parts[0].max() < 70


@pytest.mark.parametrize("suffix", [".tif", ".png"])
def test_16_bits_in_grey_files_of_pillow_are_read(tmp_path, suffix):
    Image.fromarray(RAMP[..., 0].astype("uint16")).save(tmp_path / f"a{suffix}")
    assert open_range(tmp_path / f"a{suffix}", stretch=(0, 100)) == (300, 1300)


def test_16_bit_colours_of_a_png_keep_all_bits(tmp_path):
    samples = np.concatenate([RAMP, RAMP, RAMP], axis=2).astype("uint16")
    path = write(tmp_path / "a.png", samples, driver="PNG")
    assert len(np.unique(decode_image(path))) == 256  # their upper 8 bits have 5 values


def test_no_data_is_black_and_has_no_part_in_the_limits(tmp_path):
    samples = RAMP.astype("uint16")
    samples[:50] = 65_535
    path = write(tmp_path / "a.tif", samples, nodata=65_535)
    assert open_range(path, stretch=(0, 100)) == (samples[50:].min(), 1300)
    pixels = decode_image(path)
    assert pixels[:50].max() == 0
    assert pixels[-1, -1].tolist() == [255] * 3


def test_px_are_without_data_where_no_band_has_any(tmp_path):
    samples = np.full((4, 5, 3), 100, dtype="uint8")
    samples[0] = 255
    samples[1, :, 0] = 255  # saturated in one band
    pixels = decode_image(write(tmp_path / "a.tif", samples, nodata=255))
    assert pixels[0].max() == 0
    assert pixels[1, 0].tolist() == [255, 100, 100]
    assert pixels[2, 0].tolist() == [100, 100, 100]


def test_a_mask_in_the_file_hides_px(tmp_path):
    samples = RAMP.astype("uint16")
    mask = np.full((100, 100), 255, dtype="uint8")
    mask[:50] = 0
    path = write(tmp_path / "a.tif", samples, mask=mask)
    assert open_range(path, stretch=(0, 100)) == (samples[50:].min(), 1300)
    assert decode_image(path)[:50].max() == 0
    assert decode_image(path)[50:].max() == 255


@pytest.mark.parametrize(
    ("dtype", "nodata"), [("float32", -3.4028234663852886e38), ("float32", math.nan)]
)
def test_no_data_of_floats_is_black(tmp_path, dtype, nodata):
    samples = RAMP.astype(dtype)
    samples[:50] = nodata
    path = write(tmp_path / "a.tif", samples, nodata=nodata)
    assert open_range(path, stretch=(0, 100)) == pytest.approx((samples[50:].min(), 1300))
    assert decode_image(path)[:50].max() == 0


def test_a_no_data_value_that_no_sample_can_have_changes_nothing(tmp_path):
    samples = RAMP.astype("uint16")
    expected = decode_image(write(tmp_path / "a.tif", samples))
    for value in ("-9999", "0.5"):  # rasterio writes no such value, other programs do
        tags = TiffImagePlugin.ImageFileDirectory_v2()
        tags.tagtype[NODATA] = ASCII
        tags[NODATA] = value
        Image.fromarray(samples[..., 0]).save(tmp_path / "b.tif", tiffinfo=tags)
        np.testing.assert_array_equal(decode_image(tmp_path / "b.tif"), expected)
    tags[NODATA] = "700"  # it is the tag
    Image.fromarray(samples[..., 0]).save(tmp_path / "b.tif", tiffinfo=tags)
    assert (decode_image(tmp_path / "b.tif") != expected).any()


def test_floats_that_are_not_finite_take_the_nearest_limit(tmp_path):
    samples = np.linspace(-1, 1, 400, dtype="float32").reshape(20, 20, 1)
    samples[0, :3, 0] = [np.nan, np.inf, -np.inf]
    assert decode_image(write(tmp_path / "a.tif", samples))[0, :3, 0].tolist() == [0, 255, 0]


@pytest.mark.parametrize("value", [700, 0])
def test_constant_image_of_16_bits_is_black(tmp_path, value):
    path = write(tmp_path / "a.tif", np.full((5, 5, 1), value, dtype="uint16"))
    assert decode_image(path).max() == 0


def test_an_image_without_any_data_is_black(tmp_path):
    path = write(tmp_path / "a.tif", np.full((5, 5, 1), np.nan, dtype="float32"))
    assert decode_image(path).max() == 0


def test_a_rare_bright_object_on_a_constant_ground_is_seen(tmp_path):
    samples = np.full((100, 100, 1), 500, dtype="uint16")
    samples[3, 4] = 900
    path = write(tmp_path / "a.tif", samples)
    assert open_range(path) == (500, 900)  # both percentiles are 500
    assert decode_image(path)[3, 4, 0] == 255


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.floats(0, 1))
def test_stretch_is_linear_between_its_ends(low, span, share):
    value = np.array([low, low + span, low + share * span])
    black, white, between = stretch(value, low, low + span).tolist()
    assert (black, white) == (0, 255)
    assert between == pytest.approx(255 * share, abs=0.51)  # rounding


def test_a_part_of_a_huge_tiff_needs_little_memory(tmp_path):
    """10,000 x 10,000 px of 16 bits are 200 MB."""
    profile = {"driver": "GTiff", "width": 10_000, "height": 10_000, "count": 1}
    path = tmp_path / "a.tif"
    layout = {"tiled": True, "blockxsize": 512, "blockysize": 512, "SPARSE_OK": True}
    with rasterio.open(path, "w", **profile, dtype="uint16", **layout) as file:
        file.write(np.full((1, 64, 64), 9, "uint16"), window=((9_000, 9_064), (400, 464)))
    tracemalloc.start()
    with open_image(path, stretch=(0, 100)) as source:
        assert not source.is_decoded
        part = source.read(380, 8_990, 1024, 1024)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert part[..., 0].sum() == 64 * 64 * 255
    assert peak_bytes < 30e6
