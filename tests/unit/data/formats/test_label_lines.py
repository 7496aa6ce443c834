import math

import pytest

from obbflow.data.formats.label_lines import parse_label_text, read_label_file
from obbflow.errors import DataError

BOX = "1 2 9 2 9 6 1 6"


def test_headers_are_known_by_content_wherever_they_stand():
    parsed = parse_label_text(f"ImageSource: GoogleEarth\n{BOX} ship 0\nGSD:0.25\n{BOX} ship 0")
    assert [item.line for item in parsed.objects] == [2, 4]
    assert parsed.gsd == 0.25
    assert parsed.bad_lines == []


@pytest.mark.parametrize("text", ["gsd:null", "gsd:None", "gsd:", "gsd:-1", ""])
def test_gsd_that_is_no_length_is_not_known(text):
    assert math.isnan(parse_label_text(text).gsd)


@pytest.mark.parametrize(
    ("end", "name", "difficult"),
    [
        ("ship 0", "ship", False),
        ("ship 1", "ship", True),
        ("ship 2", "ship", True),
        ("ship 1.0", "ship", True),
        ("ship", "ship", False),
        ("storage tank 0", "storage tank", False),
        ("storage tank", "storage tank", False),
        ("boeing 737 1", "boeing 737", True),
        ("3", "3", False),
    ],
)
def test_class_is_all_between_corners_and_difficulty(end, name, difficult):
    (item,) = parse_label_text(f"{BOX} {end}").objects
    assert (item.class_name, item.difficult) == (name, difficult)
    assert item.corners == (1, 2, 9, 2, 9, 6, 1, 6)


def test_line_ends_tabs_and_blank_lines_do_not_matter():
    tabbed = BOX.replace(" ", "\t")
    parsed = parse_label_text(f"\r\n{tabbed}\tplane\t0  \r\n\r\n \n{BOX} ship 0")
    assert [(item.line, item.class_name) for item in parsed.objects] == [(2, "plane"), (5, "ship")]
    assert parsed.bad_lines == []


@pytest.mark.parametrize(
    ("line", "name", "difficult"),
    [
        ("1,2,9,2,9,6,1,6,storage tank,1", "storage tank", True),
        ("1, 2, 9, 2, 9, 6, 1, 6, ship, 0", "ship", False),
        ("1.0,2.0,9,2,9,6,1e0,+6,ship", "ship", False),
        ("1,2,9,2,9,6,1,6,ship,", "ship", False),
        ("1 2 9 2 9 6 1 6 ship,large 1", "ship,large", True),
    ],
)
def test_commas_divide_fields_and_may_stand_in_a_class(line, name, difficult):
    (item,) = parse_label_text(line).objects
    assert item.corners == (1, 2, 9, 2, 9, 6, 1, 6)
    assert (item.class_name, item.difficult) == (name, difficult)


def test_column_names_are_a_header():
    parsed = parse_label_text(f"x1,y1,x2,y2,x3,y3,x4,y4,category,difficult\n{BOX} ship 0")
    assert [item.line for item in parsed.objects] == [2]
    assert parsed.bad_lines == []


def test_time_to_refuse_a_line_grows_with_its_length_only():
    """A pattern that matches in many ways would take for ever here."""
    line = " ".join(["1" * 2000] * 7) + " " * 5000 + "1" * 2000 + "x"
    (bad,) = parse_label_text(line).bad_lines
    assert bad.kind == "field_count"


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        ("1 2 9 2 9 6 1 ship 0", "field_count", "9 fields"),
        ("1 2 9 2 9 6 1 6", "field_count", "8 fields"),
        ("ship", "field_count", "1 fields"),
        (f"{BOX} ,", "field_count", "no class"),
        ("1,5 2,5 9,0 2,5 9,5 6,5 1,0 6,5 ship 0", "bad_class", "points as decimal signs"),
        ("1 2 x 2 9 6 1 6 ship 0", "not_a_number", "coordinate 3 is 'x'"),
        ("1 2 1_0 2 9 6 1 6 ship 0", "not_a_number", "'1_0'"),
        ("1 2 9 nan 9 6 1 6 ship 0", "not_finite", "coordinate 4 is 'nan'"),
        ("1 2 9 -inf 9 6 1 6 ship 0", "not_finite", "'-inf'"),
        ("1 2 9 1e999 9 6 1 6 ship 0", "not_finite", "no place in an image"),
        ("1 -2e9 9 2 9 6 1 6 ship 0", "not_finite", "no place in an image"),
        (f"{BOX} ship 7", "bad_difficulty", "'7'"),
        ("0 .1 .2 .3 .2 .3 .4 .1 .4", "bad_class", "the number .4"),
    ],
)
def test_bad_line_says_what_is_wrong_and_the_rest_is_read(line, kind, words):
    parsed = parse_label_text(f"{BOX} plane 0\n{line}\n{BOX} plane 0")
    assert [item.line for item in parsed.objects] == [1, 3]
    (bad,) = parsed.bad_lines
    assert (bad.line, bad.kind) == (2, kind)
    assert words in bad.message


@pytest.mark.parametrize(
    ("corners", "is_normalised"),
    [
        (".1 .1 .2 .1 .2 .3 .1 .3", True),
        ("0 0 1 0 1 1 0 1", False),  # a box of one px in the corner
        ("0 0 0 0 0 0 0 0", False),  # a place holder of some tools
        (".1 .1 2 .1 2 .3 .1 .3", False),
    ],
)
def test_fractions_of_the_image_are_recognised(corners, is_normalised):
    assert parse_label_text(f"{corners} ship 0").is_normalised is is_normalised


def test_byte_order_mark_is_no_part_of_the_first_number(tmp_path):
    path = tmp_path / "P1.txt"
    path.write_bytes(f"\ufeff{BOX} avión 0".encode())
    (item,) = read_label_file(path).objects
    assert item.class_name == "avión"


def test_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "P1.txt"
    path.write_bytes(b"\xff\xfe1\x002\x00")
    with pytest.raises(DataError, match=r"P1\.txt: not UTF-8 text"):
        read_label_file(path)
