import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from obbflow.data.images import read_georeference

SCALE, TIE_POINTS, MATRIX, KEYS = 33550, 33922, 34264, 34735
DOUBLE, SHORT = 12, 3
UTM_31 = (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32631)
NORTH_UP = {SCALE: (0.5, 0.25, 0.0), TIE_POINTS: (10.0, 20.0, 0.0, 500000.0, 4600000.0, 0.0)}


def write(path, tags):
    info = TiffImagePlugin.ImageFileDirectory_v2()
    for tag, value in tags.items():
        info.tagtype[tag] = SHORT if tag in (KEYS, 274) else DOUBLE
        info[tag] = value
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(path, tiffinfo=info)
    return path


def test_a_tie_point_and_a_scale_place_the_pixels(tmp_path):
    reference = read_georeference(write(tmp_path / "a.tif", {**NORTH_UP, KEYS: UTM_31}))

    mapped = reference.to_map(np.array([[10.0, 20.0], [12.0, 24.0]]))
    assert mapped.tolist() == [[500000.0, 4600000.0], [500001.0, 4599999.0]]
    assert (reference.epsg, reference.is_geographic) == (32631, False)


def test_a_matrix_places_turned_images(tmp_path):
    rows = (0.0, -2.0, 0.0, 100.0, 3.0, 0.0, 0.0, 200.0, *(0.0,) * 7, 1.0)
    reference = read_georeference(write(tmp_path / "a.tiff", {MATRIX: rows}))

    assert reference.to_map(np.array([5.0, 7.0])).tolist() == [86.0, 215.0]
    assert reference.epsg is None


def test_a_tie_point_of_a_pixels_centre_is_moved_by_half_a_pixel(tmp_path):
    keys = (1, 1, 0, 3, 1024, 0, 1, 2, 1025, 0, 1, 2, 2048, 0, 1, 4326)
    tags = {SCALE: (0.1, 0.1, 0.0), TIE_POINTS: (0.0, 0.0, 0.0, 2.0, 50.0, 0.0), KEYS: keys}
    reference = read_georeference(write(tmp_path / "a.tif", tags))

    assert reference.to_map(np.array([0.5, 0.5])) == pytest.approx([2.0, 50.0])
    assert (reference.epsg, reference.is_geographic) == (4326, True)


def test_a_user_defined_system_has_no_code(tmp_path):
    keys = (*UTM_31[:-1], 32767)
    assert read_georeference(write(tmp_path / "a.tif", {**NORTH_UP, KEYS: keys})).epsg is None


@pytest.mark.parametrize(
    ("tags", "warning"),
    [
        ({}, ""),
        ({TIE_POINTS: NORTH_UP[TIE_POINTS] * 2}, "without a pixel scale"),
        ({**NORTH_UP, 274: 6}, "turned by its orientation"),
    ],
    ids=["plain", "tie points alone", "turned"],
)
def test_what_cannot_be_placed_has_no_georeference(tmp_path, caplog, tags, warning):
    assert read_georeference(write(tmp_path / "a.tif", tags)) is None
    assert warning in caplog.text


def test_other_files_have_no_georeference(tmp_path):
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "a.png").rename(tmp_path / "b.tif")
    assert read_georeference(tmp_path / "missing.png") is None
    assert read_georeference(tmp_path / "b.tif") is None
