import math

import pytest

from obbflow.data.formats.polygons import corners_of, read_ring


def test_closing_and_repeated_points_are_left_out():
    ring = read_ring([[0, 0], [0, 0], [4, 0, 7.5], [4, 2], [0, 2], [0, 0]])
    assert ring == [(0, 0), (4, 0), (4, 2), (0, 2)]


def test_more_corners_become_the_smallest_rectangle():
    turn = math.radians(30)
    outline = [(0, 0), (5, 0), (10, 0), (10, 4), (0, 4)]
    cos, sin = math.cos(turn), math.sin(turn)
    ring = [(x * cos - y * sin, x * sin + y * cos) for x, y in outline]
    corners = corners_of([ring])
    points = list(zip(corners[::2], corners[1::2], strict=True))
    sides = sorted(math.dist(points[n], points[(n + 1) % 4]) for n in range(4))
    assert sides == pytest.approx([4, 4, 10, 10])
    assert sum(x for x, _ in points) / 4 == pytest.approx(5 * cos - 2 * sin)


def test_points_on_one_line_have_no_area():
    corners = corners_of([[(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]])
    assert len(corners) == 8
    assert set(zip(corners[::2], corners[1::2], strict=True)) == {(0, 0), (2, 2)}
