"""Headers, and files that are broken."""

import hashlib
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rasterio
from PIL import Image

from obbflow.data.images import decode_image, is_image_name, open_image, probe_images
from obbflow.data.images.reading import unlimited_pixels
from obbflow.errors import DataError

EXIF_TURNED = 6  # shown after a quarter turn clockwise
SUFFIXES = [".png", ".jpg", ".tif", ".bmp", ".webp"]


def probe(path):
    facts, broken = probe_images([path])
    assert broken == {}
    return facts[path]


def why_broken(path):
    facts, broken = probe_images([path])
    assert facts == {}
    return broken[path]


def noise(height=60, width=80, bands=3):
    return np.random.default_rng(0).integers(0, 256, (height, width, bands), dtype=np.uint8)


def from_origin(west, north, width, height):
    return rasterio.Affine(width, 0, west, 0, -height, north)


def write_tiff(path, samples, **options):
    height, width, count = samples.shape
    profile = {"driver": "GTiff", "width": width, "height": height, "count": count}
    with rasterio.open(path, "w", **profile, dtype=samples.dtype, **options) as file:
        file.write(samples.transpose(2, 0, 1))
    return path


@pytest.mark.parametrize(
    "name", ["a.png", "a.JPG", "a.b.jpeg", "a.TIF", "a.tiff", "a.bmp", "a.WebP"]
)
def test_endings_of_images_in_any_case(name):
    assert is_image_name(name)


@pytest.mark.parametrize("name", ["a.txt", "png", "a.png.txt", "a.jp2"])
def test_other_endings_are_no_images(name):
    assert not is_image_name(name)


@pytest.mark.parametrize(
    ("mode", "suffix", "bands", "dtype"),
    [
        ("RGB", ".png", 3, "uint8"),
        ("RGB", ".jpg", 3, "uint8"),
        ("RGB", ".webp", 3, "uint8"),
        ("RGB", ".tif", 3, "uint8"),
        ("L", ".bmp", 1, "uint8"),
        ("LA", ".png", 2, "uint8"),
        ("RGBA", ".png", 4, "uint8"),
        ("CMYK", ".jpg", 4, "uint8"),
        ("CMYK", ".tif", 4, "uint8"),
        ("P", ".png", 1, "uint8"),
        ("P", ".tif", 1, "uint8"),
        ("1", ".png", 1, "uint8"),
        ("I;16", ".png", 1, "uint16"),
        ("I;16", ".tif", 1, "uint16"),
        ("F", ".tif", 1, "float32"),
    ],
)
def test_every_kind_of_image_is_probed(tmp_path, mode, suffix, bands, dtype):
    path = tmp_path / f"a{suffix}"
    Image.new(mode, (30, 20)).save(path)
    facts = probe(path)
    assert (facts.width, facts.height, facts.bands, facts.dtype) == (30, 20, bands, dtype)
    assert facts.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert math.isnan(facts.gsd)
    assert decode_image(path).shape == (20, 30, 3)


@pytest.mark.parametrize(("bands", "dtype"), [(3, "uint16"), (4, "uint16")])
def test_colours_of_16_bits_in_a_png_are_probed(tmp_path, bands, dtype):
    path = tmp_path / "a.png"
    profile = {"driver": "PNG", "width": 30, "height": 20, "count": bands, "dtype": dtype}
    with rasterio.open(path, "w", **profile) as file:
        file.write(np.zeros((bands, 20, 30), dtype))
    assert (probe(path).bands, probe(path).dtype) == (bands, dtype)


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint32", "float64"])
def test_types_and_bands_of_a_tiff_are_probed(tmp_path, dtype):
    path = write_tiff(tmp_path / "a.tif", noise(bands=7).astype(dtype), interleave="band")
    facts = probe(path)
    assert (facts.width, facts.height, facts.bands, facts.dtype) == (80, 60, 7, dtype)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif", ".webp"])
def test_size_is_the_one_that_is_shown(tmp_path, suffix):
    exif = Image.Exif()
    exif[0x0112] = EXIF_TURNED
    Image.fromarray(noise()).save(tmp_path / f"a{suffix}", exif=exif)
    facts = probe(tmp_path / f"a{suffix}")
    assert (facts.width, facts.height) == (60, 80)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif"])
def test_an_image_that_lacks_a_band_cannot_be_used(tmp_path, suffix):
    Image.fromarray(noise()).save(tmp_path / f"rgb{suffix}")
    Image.fromarray(noise()[..., 0]).save(tmp_path / f"grey{suffix}")
    facts, broken = probe_images(list(tmp_path.iterdir()), bands=(3, 2, 1))
    assert [path.stem for path in facts] == ["rgb"]
    (reason,) = broken.values()
    assert "dataset.bands asks for band 3, the image has 1" in reason


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_file_that_was_cut_off_is_broken(tmp_path, suffix, share):
    path = tmp_path / f"a{suffix}"
    Image.fromarray(noise()).save(path)
    assert probe(path).width == 80
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    assert "the image cannot be read" in why_broken(path)
    with pytest.raises(DataError, match=r"a\.\w+: .*; replace or remove the image"):
        decode_image(path)


@pytest.mark.parametrize("compression", ["none", "lzw", "deflate", "jpeg", "zstd"])
@pytest.mark.parametrize("layout", [{}, {"tiled": True, "blockxsize": 16, "blockysize": 16}])
def test_tiff_whose_strips_or_tiles_lie_beyond_its_end_is_broken(tmp_path, compression, layout):
    path = write_tiff(tmp_path / "a.tif", noise(), compress=compression, **layout)
    size = path.stat().st_size - 50
    path.write_bytes(path.read_bytes()[:size])
    reason = f"the file ends after {size:,} bytes, before its image does"
    assert why_broken(path) == f"the image cannot be read ({reason})"
    with pytest.raises(DataError, match=r"a\.tif: the image cannot be read \(.*[Rr]ead"):
        decode_image(path)


@pytest.mark.parametrize("compression", ["lzw", "deflate"])
def test_tiff_whose_strips_are_damaged_inside_cannot_be_decoded(tmp_path, compression):
    path = write_tiff(tmp_path / "a.tif", noise(700, 90), compress=compression)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 300] = bytes(300)
    path.write_bytes(content)
    assert probe(path).width == 90  # its header and its end are there
    with open_image(path) as source:
        source.read(0, 0, 90, 10)  # what is whole can be read
        with pytest.raises(DataError, match=r"a\.tif: the image cannot be read \(.*ecod"):
            source.require_decodable()


@pytest.mark.parametrize("place", [0.3, 0.6, 0.98])
def test_png_with_a_wrong_byte_is_broken(tmp_path, place):
    path = tmp_path / "a.png"
    Image.fromarray(noise()).save(path)
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 1
    path.write_bytes(content)
    assert "cannot be read" in why_broken(path)
    with pytest.raises(DataError, match=r"a\.png: the image cannot be read"):
        decode_image(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_whole_images_are_decodable(tmp_path, suffix):
    Image.fromarray(noise(700, 40)).save(tmp_path / f"a{suffix}")
    with open_image(tmp_path / f"a{suffix}") as source:
        source.require_decodable()
        last_row = source.read(0, 699, 40, 1)
    np.testing.assert_array_equal(last_row, decode_image(tmp_path / f"a{suffix}")[-1:])


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "the file is empty"), (b"only a text", "no image of a known format")],
    ids=["empty", "text"],
)
def test_what_is_no_image_is_named_with_the_reason(tmp_path, suffix, content, reason):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    assert reason in why_broken(path)
    with pytest.raises(DataError, match=rf"a\{suffix}: .*{reason}"):
        open_image(path)


@pytest.mark.parametrize(
    "content",
    [b"II*\0", b"II*\0\x08\0\0\0" + b"\xff" * 50, b"MM\0+", b"\x89PNG", b"\xff\xd8\xff\xe0", b"BM"],
    ids=["tiff", "tiff tags", "bigtiff", "png", "jpeg", "bmp"],
)
def test_a_start_alone_is_no_image(tmp_path, content):
    path = tmp_path / "a.tif"
    path.write_bytes(content)
    assert why_broken(path)
    with pytest.raises(DataError, match=r"a\.tif: "):
        open_image(path)


def test_folder_and_missing_file_are_no_images(tmp_path):
    (tmp_path / "a.png").mkdir()
    assert why_broken(tmp_path / "a.png") == "the image cannot be read (Is a directory)"
    reason = "the image cannot be read (No such file or directory)"
    assert why_broken(tmp_path / "b.png") == reason
    with pytest.raises(DataError, match=r"a\.png: .*Is a directory"):
        open_image(tmp_path / "a.png")


def test_samples_that_cannot_be_shown_are_named(tmp_path):
    path = write_tiff(tmp_path / "a.tif", noise(bands=1).astype("complex64"))
    assert "complex numbers" in why_broken(path)
    path = write_tiff(tmp_path / "b.tif", noise(bands=4).astype("uint16"), photometric="CMYK")
    assert "CMYK with more than 8 bits a sample; save it as RGB" in why_broken(path)


def test_the_others_go_on(tmp_path):
    Image.fromarray(noise()).save(tmp_path / "good.png")
    (tmp_path / "bad.png").touch()
    facts, broken = probe_images([tmp_path / "bad.png", tmp_path / "good.png"])
    assert list(facts) == [tmp_path / "good.png"]
    assert list(broken) == [tmp_path / "bad.png"]


@pytest.mark.parametrize(("suffix", "gigabytes"), [(".jpg", 0.0), (".png", 0.1), (".tif", 0.0)])
def test_memory_for_images_beyond_the_pixel_limit_is_logged(
    tmp_path, monkeypatch, caplog, suffix, gigabytes
):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    path = tmp_path / f"a{suffix}"
    Image.new("L", (6000, 4000)).save(path, compression="tiff_deflate")
    assert probe(path).width == 6000
    assert decode_image(path).shape == (4000, 6000, 3)
    assert Image.MAX_IMAGE_PIXELS == 100
    (message,) = caplog.messages
    assert message.startswith(f"{path}: 24.0 megapixels, decoding it takes up to ")
    assert message.endswith(" GB of memory")
    assert float(message.split()[-4]) == pytest.approx(gigabytes, abs=0.11)


def test_the_pixel_limit_is_back_when_the_last_thread_is_done(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)

    def lift(_):
        with unlimited_pixels() as limit:
            return limit, Image.MAX_IMAGE_PIXELS

    with unlimited_pixels(), ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lift, range(200))) == {(100, None)}
        assert Image.MAX_IMAGE_PIXELS is None
    assert Image.MAX_IMAGE_PIXELS == 100


@pytest.mark.parametrize(
    ("crs", "transform", "gsd"),
    [
        ("EPSG:32631", from_origin(500_000, 4_600_000, 0.5, 0.5), 0.5),
        ("EPSG:32631", from_origin(500_000, 4_600_000, 0.5, 2), 1),
        ("EPSG:2263", from_origin(980_000, 200_000, 1, 1), 0.3048),  # feet
        # a degree is 111.32 km on the equator, along it, and 110.57 km across
        ("EPSG:4326", from_origin(10, 0, 1e-5, 1e-5), 1e-5 * math.sqrt(111_320 * 110_574)),
        # at 60 degrees north, one degree east is 55.80 km, one north 111.41 km
        ("EPSG:4326", from_origin(10, 60, 1e-5, 1e-5), 1e-5 * math.sqrt(55_800 * 111_412)),
        # there a metre of Web Mercator is half a metre
        ("EPSG:3857", from_origin(1_113_195, 8_399_738, 1, 1), 0.5),
    ],
    ids=["metres", "oblong", "feet", "degrees", "northern degrees", "Web Mercator"],
)
def test_gsd_is_metres_on_the_ground(tmp_path, crs, transform, gsd):
    path = write_tiff(tmp_path / "a.tif", noise(10, 10), crs=crs, transform=transform)
    # maps are true to scale within a few tenths of a per cent
    assert probe(path).gsd == pytest.approx(gsd, rel=4e-3)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"transform": from_origin(0, 0, 0.5, 0.5)},
        {"crs": "EPSG:32631"},
        {"crs": "EPSG:4326", "transform": from_origin(10, 500, 1, 1)},
    ],
    ids=["nothing", "no reference system", "no place", "beyond the pole"],
)
def test_gsd_is_not_known_without_place_and_system(tmp_path, options):
    path = write_tiff(tmp_path / "a.tif", noise(10, 10), **options)
    assert math.isnan(probe(path).gsd)
