import json

import pytest

from obbflow.data.formats.airbus_export import parse_features
from obbflow.data.formats.polygons import Fault

RING = [[10, 10], [30, 10], [30, 20], [10, 20], [10, 10]]


def parse(geometry, properties=None, difficult_tags=("Hidden",)):
    feature = {"geometry": geometry, "properties": properties or {"tags": ["Car"]}}
    return parse_features(json.dumps({"features": [feature]}), difficult_tags)


def test_four_corners_are_kept_in_their_order():
    (found,) = parse({"type": "Polygon", "coordinates": [RING]}).objects
    assert found == (1, (10, 10, 30, 10, 30, 20, 10, 20), "Car", False)


def test_a_hole_does_not_count():
    hole = [[12, 12], [14, 12], [14, 14], [12, 12]]
    (found,) = parse({"type": "Polygon", "coordinates": [RING, hole]}).objects
    assert found.corners == (10, 10, 30, 10, 30, 20, 10, 20)


def test_parts_of_a_multi_polygon_are_one_object():
    second = [[40, 10], [50, 10], [50, 20], [40, 20]]
    (found,) = parse({"type": "MultiPolygon", "coordinates": [[RING], [second]]}).objects
    corners = sorted(zip(found.corners[::2], found.corners[1::2], strict=True))
    assert corners == [(10, 10), (10, 20), (50, 10), (50, 20)]


def test_the_outline_of_the_tile_is_no_object():
    content = parse({"type": "Polygon", "coordinates": [RING]}, {"mask": True, "tags": ["Car"]})
    assert (content.objects, content.bad_lines) == ([], [])


def test_a_tag_that_means_difficult_is_no_part_of_the_class():
    (found,) = parse(
        {"type": "Polygon", "coordinates": [RING]}, {"tags": ["Hidden", "Car", "Red"]}
    ).objects
    assert (found.class_name, found.difficult) == ("Car, Red", True)


@pytest.mark.parametrize(
    ("geometry", "properties", "kind"),
    [
        (None, None, "not_a_polygon"),
        ({"type": "\ud800", "coordinates": [1, 2]}, None, "not_a_polygon"),
        ({"type": "Point", "coordinates": [1, 2]}, None, "not_a_polygon"),
        ({"type": "Polygon", "coordinates": []}, None, "not_a_polygon"),
        ({"type": "Polygon", "coordinates": [[[1, 2], [3, 4], [1, 2]]]}, None, "not_a_polygon"),
        ({"type": "Polygon", "coordinates": [[[1, 2], [3, "4"], [5, 6]]]}, None, "not_a_polygon"),
        (
            {"type": "Polygon", "coordinates": [[[1, 2], [3, float("nan")], [5, 6]]]},
            None,
            "not_finite",
        ),
        ({"type": "Polygon", "coordinates": [[[1, 2], [3, 10**400], [5, 6]]]}, None, "not_finite"),
        ({"type": "MultiPolygon", "coordinates": [RING]}, None, "not_a_polygon"),
        ({"type": "Polygon", "coordinates": [RING]}, {"tags": []}, "bad_class"),
        ({"type": "Polygon", "coordinates": [RING]}, {"tags": "Car"}, "bad_class"),
        ({"type": "Polygon", "coordinates": [RING]}, {"name": "Car"}, "bad_class"),
    ],
)
def test_a_feature_that_is_no_object_has_its_reason(geometry, properties, kind):
    content = parse(geometry, properties)
    assert content.objects == []
    assert [(bad.line, bad.kind) for bad in content.bad_lines] == [(1, kind)]
    assert content.bad_lines[0].message.encode()  # no half characters, which no table can hold


@pytest.mark.parametrize(
    ("text", "kind"),
    [("{", "not_json"), ("[" * 100_000, "not_json"), ("[]", "not_geojson"), ("{}", "not_geojson")],
    ids=["cut off", "deep", "list", "no features"],
)
def test_a_text_that_is_no_geojson_has_its_reason(text, kind):
    found = parse_features(text, ())
    assert isinstance(found, Fault)
    assert found.kind == kind
