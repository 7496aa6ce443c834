"""Cutting the tiles of one image: memory, order, and files that cannot be written."""

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rasterio.env import get_gdal_config

from obbflow.data.images import gdal
from obbflow.data.tile_pixels import PixelJob, TileJob, cut_or_explain, cut_pixels

SIDE = 100

GIANT = """
import sys
from pathlib import Path

import numpy as np
import rasterio

from obbflow.data.images import gdal
from obbflow.data.tile_pixels import PixelJob, TileJob, cut_pixels

SIDE, TILE, BLOCK = 30_000, 1024, 512
folder, processes = Path(sys.argv[1]), int(sys.argv[2])
gdal.share_cache(processes)
profile = {"driver": "GTiff", "width": SIDE, "height": SIDE, "count": 3, "dtype": "uint8"}
profile |= {"blockxsize": BLOCK, "blockysize": BLOCK, "tiled": True, "compress": "lzw"}
with rasterio.open(folder / "a.tif", "w", **profile, interleave="pixel", sparse_ok=True) as file:
    mark = np.arange(3 * 40 * 50, dtype=np.uint8).reshape(3, 40, 50) + 1
    file.write(mark, window=((SIDE - 40, SIDE), (SIDE - 50, SIDE)))  # bottom right
starts = [*range(0, SIDE - TILE, 824), SIDE - TILE]
tiles = tuple(
    TileJob(str(folder / f"{x}_{y}.jpg"), x, y, TILE, TILE, (TILE, TILE), (SIDE, SIDE))
    for y in starts[-8:]
    for x in starts[::2]
)
cut_pixels(
    PixelJob("a", str(folder / "a.tif"), SIDE, SIDE, None, (0.1, 99.9), tiles, "jpg", 95, "4:4:4")
)
status = Path("/proc/self/status").read_text()
print(next(int(line.split()[1]) / 1000 for line in status.splitlines() if "VmHWM" in line))
"""


def make_job(folder):
    """Return a job of four tiles of a random image, column by column."""
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "a.png")
    (folder / "train").mkdir()
    tiles = tuple(
        TileJob(str(folder / "train" / f"{x}_{y}.png"), x, y, 60, size, (60, 60), (SIDE, SIDE))
        for x in (0, 40)
        for y, size in ((0, 60), (70, 30))
    )
    source = str(folder / "a.png")
    values = ("a", source, SIDE, SIDE, None, (0.1, 99.9), tiles, "png", 95, "4:4:4")
    return PixelJob(*values), pixels


def test_padding_is_black_after_a_full_tile(tmp_path):
    job, pixels = make_job(tmp_path)
    result = cut_pixels(job)
    for tile, size_bytes in zip(job.tiles, result.sizes_bytes, strict=True):
        assert Path(tile.file).stat().st_size == size_bytes
        with Image.open(tile.file) as image:
            shown = np.asarray(image)
        expected = np.zeros((60, 60, 3), dtype=np.uint8)
        expected[: tile.height] = pixels[tile.y : tile.y + tile.height, tile.x : tile.x + 60]
        np.testing.assert_array_equal(shown, expected)


@pytest.mark.parametrize("image_format", ["png", "jpg"])
def test_a_full_disk_names_the_folder_and_leaves_no_part_of_a_file(
    tmp_path, monkeypatch, image_format
):
    job, _ = make_job(tmp_path)
    job = replace(job, image_format=image_format)
    open_file = Path.open

    def open_full(path, mode="r", **settings):
        file = open_file(path, mode, **settings)
        if "w" in mode and len(list(path.parent.iterdir())) == 3:  # two tiles and this one
            descriptor = os.open("/dev/full", os.O_WRONLY)
            os.dup2(descriptor, file.fileno())
            os.close(descriptor)
        return file

    monkeypatch.setattr(Path, "open", open_full)
    with pytest.raises(OSError, match="No space left") as caught:
        cut_or_explain(job)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path / "train")
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == ["0_0.png", "40_0.png"]


@pytest.mark.parametrize(("chroma", "kept"), [("4:4:4", 255), ("4:2:0", 64)])
def test_chroma_is_that_of_the_setting(tmp_path, chroma, kept):
    job, pixels = make_job(tmp_path)
    pixels[:] = 0
    pixels[::2, ::2] = (255, 0, 0)  # lone red px, which share their colour with three others
    Image.fromarray(pixels).save(job.source)
    tile = replace(job.tiles[0], canvas=(60, 60))
    cut_pixels(replace(job, tiles=(tile,), image_format="jpg", jpeg_chroma=chroma))
    with Image.open(tile.file) as image:
        red, _, blue = image.convert("RGB").getpixel((30, 30))
    assert (red - blue) == pytest.approx(kept, abs=20)


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_memory_for_a_giant_tiff_is_that_of_a_cache(tmp_path):
    finished = subprocess.run(
        [sys.executable, "-c", GIANT, str(tmp_path), "4"],
        capture_output=True,
        text=True,
        check=True,
    )
    # 128 MB of blocks and the interpreter; what the tiles show takes 600 MB, the image 2,700.
    assert float(finished.stdout) < 280
    with Image.open(max(tmp_path.glob("*.jpg"), key=lambda path: path.stat().st_size)) as tile:
        assert np.asarray(tile)[-40:, -50:].std() > 50
        assert np.asarray(tile)[:900].max() == 0


def test_a_process_alone_has_the_whole_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("GDAL_CACHEMAX", raising=False)
    gdal._import_rasterio.cache_clear()
    job, _ = make_job(tmp_path)
    cut_pixels(job)
    assert get_gdal_config("GDAL_CACHEMAX") == 512 * 2**20
