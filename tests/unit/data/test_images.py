import hashlib

import numpy as np
import pytest
from PIL import Image

from obbflow.data.images import (
    decode_image,
    is_image_name,
    load_image,
    probe_images,
    undecodable_images,
)
from obbflow.errors import DataError

EXIF_TURNED = 6  # shown after a quarter turn clockwise


def probe(path):
    facts, broken = probe_images([path])
    assert broken == {}
    return facts[path]


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
        ("L", ".bmp", 1, "uint8"),
        ("RGBA", ".png", 4, "uint8"),
        ("CMYK", ".jpg", 4, "uint8"),
        ("P", ".png", 1, "uint8"),
        ("1", ".png", 1, "uint8"),
        ("I;16", ".png", 1, "uint16"),
        ("I;16", ".tif", 1, "uint16"),
        ("F", ".tif", 1, "float32"),
    ],
)
def test_every_kind_of_image_is_probed_and_decoded(tmp_path, mode, suffix, bands, dtype):
    path = tmp_path / f"a{suffix}"
    Image.new(mode, (30, 20)).save(path)
    facts = probe(path)
    assert (facts.width, facts.height, facts.bands, facts.dtype) == (30, 20, bands, dtype)
    assert facts.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    pixels = decode_image(path)
    assert pixels.shape == (20, 30, 3)
    assert pixels.dtype == np.uint8


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif"])
def test_exif_orientation_is_applied(tmp_path, suffix):
    stored = np.zeros((20, 30, 3), dtype=np.uint8)
    stored[:10] = 255  # the upper half, which is shown on the right
    exif = Image.Exif()
    exif[0x0112] = EXIF_TURNED
    path = tmp_path / f"a{suffix}"
    Image.fromarray(stored).save(path, exif=exif)
    facts = probe(path)
    assert (facts.width, facts.height) == (20, 30)
    shown = decode_image(path)
    assert shown.shape == (30, 20, 3)
    assert shown[:, 12:].mean() > 250
    assert shown[:, :8].mean() < 5


def test_palette_becomes_its_colours(tmp_path):
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 200, 100, 50])
    image.save(tmp_path / "a.png")
    assert decode_image(tmp_path / "a.png")[0, 0].tolist() == [200, 100, 50]


def test_transparency_is_left_out(tmp_path):
    Image.new("RGBA", (4, 4), (10, 20, 30, 0)).save(tmp_path / "a.png")
    assert decode_image(tmp_path / "a.png")[0, 0].tolist() == [10, 20, 30]


def test_more_than_8_bits_are_stretched_over_the_whole_range(tmp_path):
    values = np.linspace(300, 1300, 10_000, dtype=np.uint16).reshape(100, 100)
    Image.fromarray(values).save(tmp_path / "a.tif")
    image, value_range = load_image(tmp_path / "a.tif")
    assert image.mode == "L"
    # the 0.1 and 99.9 percentiles of a ramp of 1000 steps
    assert value_range == pytest.approx((301, 1299), abs=1)
    pixels = np.asarray(image)
    assert (pixels.min(), pixels.max()) == (0, 255)
    assert pixels[50, 0] == pytest.approx(127.5, abs=1)


def test_floats_that_are_not_finite_take_the_nearest_limit(tmp_path):
    values = np.linspace(-1, 1, 400, dtype=np.float32).reshape(20, 20)
    values[0, :3] = [np.nan, np.inf, -np.inf]
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert decode_image(tmp_path / "a.tif")[0, :3, 0].tolist() == [0, 255, 0]


def test_constant_image_of_16_bits_is_black(tmp_path):
    Image.fromarray(np.full((5, 5), 700, dtype=np.uint16)).save(tmp_path / "a.tif")
    assert decode_image(tmp_path / "a.tif").max() == 0


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".bmp", ".webp"])
def test_file_that_was_cut_off_is_broken(tmp_path, suffix):
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    path = tmp_path / f"a{suffix}"
    Image.fromarray(noise).save(path)
    assert probe(path).width == 80
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    facts, broken = probe_images([path])
    assert facts == {}
    assert list(broken) == [path]


def test_empty_file_and_text_are_no_images(tmp_path):
    (tmp_path / "a.png").touch()
    (tmp_path / "b.jpg").write_text("a text")
    _, broken = probe_images([tmp_path / "a.png", tmp_path / "b.jpg"])
    assert all("no image of a known format" in reason for reason in broken.values())
    assert len(broken) == 2
    with pytest.raises(DataError, match=r"a\.png: it is no image.*replace or remove"):
        load_image(tmp_path / "a.png")


def test_image_beyond_the_pixel_limit_is_read_and_the_limit_stays(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    Image.new("L", (30, 20)).save(tmp_path / "a.png")
    assert probe(tmp_path / "a.png").width == 30
    assert decode_image(tmp_path / "a.png").shape == (20, 30, 3)
    assert Image.MAX_IMAGE_PIXELS == 100
    (message,) = caplog.messages
    assert "a.png: 0.0 megapixels, decoding it takes up to" in message


def test_images_whose_pixels_are_damaged_inside_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # the limit is none of these images
    good = [tmp_path / f"good{number}.png" for number in range(6)]
    for path in good:
        Image.new("RGB", (40, 30)).save(path)
    damaged = tmp_path / "damaged.tif"
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(damaged, compression="tiff_adobe_deflate")
    content = damaged.read_bytes()
    damaged.write_bytes(content[:500] + bytes(200) + content[700:])
    assert probe_images([damaged])[1] == {}  # its header and its end are there

    (message,) = undecodable_images([*good, damaged])
    assert message.startswith(f"{damaged}: the image cannot be read")
    assert message.endswith("replace or remove the image")
    assert Image.MAX_IMAGE_PIXELS == 100
    assert undecodable_images([]) == []
