import pytest
from kedro.io import Version

from obbflow.datasets import HtmlDataset

PAGE = "<html><head><title>Run of Müller &amp; Söhne</title></head><body>é</body></html>"


@pytest.fixture
def dataset(tmp_path):
    return HtmlDataset(
        filepath=str(tmp_path / "report.html"), version=Version(None, "2026-01-02T03.04.05.678Z")
    )


def test_a_page_comes_back_as_it_was_saved(dataset, tmp_path):
    dataset.save(PAGE)

    assert dataset.load() == PAGE
    path = tmp_path / "report.html" / "2026-01-02T03.04.05.678Z" / "report.html"
    assert path.read_bytes() == PAGE.encode("utf-8")


def test_a_preview_shows_title_size_and_place(dataset):
    dataset.save(PAGE + "x" * 2_000_000)

    preview = dataset.preview()

    assert "Run of Müller &amp; Söhne" in preview
    assert "2,000 kB" in preview
    assert "2026-01-02T03.04.05.678Z/report.html" in preview
    assert len(preview) < 1000


def test_a_preview_is_calm_before_the_first_run(dataset):
    assert "Not written so far" in dataset.preview()
    assert not dataset.exists()
