import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from PIL import Image

from obbflow.reporting.report import render_report

VOID = {"meta", "link", "img", "br", "source"}


class Page(HTMLParser):
    """What a test looks at: tags with attributes, text, and whether tags are closed in order."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def render(data):
    source = render_report(data)
    page = Page(source)
    assert page.open == []
    return source, page


@pytest.fixture(scope="module")
def usual(make_data):
    """Source and parsed page of a run with two classes, three epochs and three tiles."""
    return render(make_data())


def test_page_holds_numbers_facts_and_classes(usual):
    _, page = usual
    # Per class: a hit before a false positive, one of two objects found: AP 0.5.
    assert "mAP (AP50) 0.500" in page.text
    assert "AP50:95 0.500" in page.text
    assert "Run 2026-01-02T03.04.05.678Z, 2026-01-02 03:04 UTC" in page.text
    assert "1 min 15 s" in page.text
    assert "0123456789" in page.text
    assert "Seed 7" in page.text
    assert "Best tile" in page.text


def test_nothing_is_loaded_from_anywhere(usual):
    source, page = usual
    assert not re.search(r"https?://|//[a-z]+\.|url\(|@import", source)
    assert page.all("script") == page.all("iframe") == []
    for attributes in page.all("img") + page.all("link"):
        target = attributes.get("src") or attributes.get("href")
        assert target.startswith("data:")
    assert all(each["srcset"].startswith("data:") for each in page.all("source"))
    policy = next(each for each in page.all("meta") if "http-equiv" in each)
    assert policy["content"].startswith("default-src 'none'")


def test_images_are_whole_and_have_a_text(usual):
    _, page = usual
    images = page.all("img")
    assert len(images) == 8 + 3 - 1  # figures; t3 has nothing to show
    assert all(len(each["alt"]) > 10 for each in images)
    kinds = [each["src"].split(";")[0] for each in images]
    assert (kinds.count("data:image/svg+xml"), kinds.count("data:image/jpeg")) == (8, 2)
    tile = next(each["src"] for each in images if each["src"].startswith("data:image/jpeg"))
    decoded = Image.open(io.BytesIO(base64.b64decode(tile.split(",")[1])))
    assert decoded.size == (960, 960)


def test_names_are_text_whatever_they_hold(make_data):
    names = ("<b>ship&co</b>", "avion_a_reaction_été", "n" * 70)
    source, page = render(make_data(names))
    assert "<b>ship" not in source
    headings = [text for text in page.texts if text in names]
    assert set(names) <= set(headings)
    assert "harbour & <bay>" in page.text
    assert "overflow-wrap: anywhere" in source


def test_one_epoch_and_one_class_are_enough(make_data):
    _, page = render(make_data(("ship",), n_epochs=1))
    assert "Epochs 1" in page.text
    assert len(page.all("img")) == 10


def test_without_validation_the_page_says_why(make_data):
    _, page = render(make_data(has_val=False))
    assert "mAP (AP50) n/a" in page.text
    assert "no validation image" in page.text
    assert "There is no validation tile" in page.text
    assert "nan" not in page.text.lower()


def test_a_hundred_classes_fold_their_figures(make_data):
    names = tuple(f"class {number:03d} {'x' * 62}" for number in range(100))
    _, page = render(make_data(names, n_epochs=2))
    rows = [text for text in page.texts if text in names]
    assert len(set(rows)) == 100
    assert "Figures by class" in page.text


def test_issues_are_counted_and_the_first_are_shown(make_data):
    issues = [
        ("labels/<a>.txt", line, "a", "warning", "zero_area", f"line {line} & more", "dropped")
        for line in range(1, 31)
    ]
    issues.append(("", None, "", "info", "difficult", "left out: 3", "dropped"))
    _, page = render(make_data(issues=issues))
    assert "31 entries" in page.text
    assert {"labels/<a>.txt:1", "zero_area", "30"} <= set(page.texts)
    assert "The first 20 entries" in page.text
    assert "line 20 & more" in page.text
    assert "line 21 & more" not in page.text
    assert "labels/<a>.txt" in page.text


def test_objects_are_counted_by_split_and_class(usual):
    source, page = usual
    assert "Objects by split and class" in page.text
    row = source.split("Objects by split and class</summary>")[1].split("<tbody>")[1]
    cells = re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", row.split("</tr>")[0])
    assert cells == ["plane", "train", "1", "1", "0", "0", "0", "0"]


def test_no_issue_is_said(usual):
    assert "None: images and labels passed every check." in usual[1].text


def test_settings_are_folded_in_full(usual):
    source, page = usual
    assert 'model_type: "oriented_rcnn"' in page.text
    assert "<summary>Configuration</summary>" in source


def test_tables_have_headers_with_a_scope(usual):
    _, page = usual
    assert {each.get("scope") for each in page.all("th")} == {"col", "row"}
    assert page.all("html") == [{"lang": "en"}]


def test_same_run_gives_the_same_page(usual, make_data):
    assert render_report(make_data()) == usual[0]


def test_a_record_without_facts_says_so(make_data):
    page = Page(render_report(replace(make_data(), run_record={})))
    assert "Run n/a" in page.text
    assert "Code not under version control" in page.text
    assert "Configuration not recorded" in page.text
