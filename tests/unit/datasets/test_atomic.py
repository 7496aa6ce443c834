import pytest

from obbflow.datasets.atomic import atomic_path


def test_the_file_appears_when_the_block_ends(tmp_path):
    target = tmp_path / "deep" / "report.html"

    with atomic_path(target) as scratch:
        scratch.write_text("new")
        assert not target.exists()

    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


def test_a_failure_leaves_the_former_file_and_nothing_else(tmp_path):
    target = tmp_path / "report.html"
    target.write_text("former")

    def write_half():
        with atomic_path(target) as scratch:
            scratch.write_text("ha")
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_half()

    assert target.read_text() == "former"
    assert list(tmp_path.iterdir()) == [target]
