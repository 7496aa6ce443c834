import errno
import json

import pandas as pd
import pytest
from kedro.io import DatasetError, Version

from obbflow.cli import describe_mistake
from obbflow.datasets import CSVDataset, JSONDataset, ParquetDataset

TABLE = pd.DataFrame({"class_name": ["NA", "ship"], "n": [1, 2]})
# dataset class -> what it holds, and how a damaged file looks
KINDS = {
    ParquetDataset: (TABLE, b"PAR1 cut off"),
    CSVDataset: (TABLE, b""),
    JSONDataset: ({"ship": 1, "NA": 2}, b'{"ship": 1, '),
}


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


def make(kind, tmp_path, version=None):
    options = {"load_args": {"keep_default_na": False}} if kind is CSVDataset else {}
    return kind(filepath=str(tmp_path / "deep" / "entry"), version=version, **options)


def same(one, other):
    return one.equals(other) if isinstance(one, pd.DataFrame) else one == other


def test_values_come_back_as_they_were_saved(kind, tmp_path):
    for version in (None, Version(None, "2026-01-02T03.04.05.678Z")):
        dataset = make(kind, tmp_path / str(bool(version)), version)
        assert not dataset.exists()
        dataset.save(KINDS[kind][0])
        assert same(dataset.load(), KINDS[kind][0])


def test_a_full_disk_leaves_the_former_file_and_nothing_else(kind, tmp_path, monkeypatch):
    dataset = make(kind, tmp_path)
    dataset.save(KINDS[kind][0])
    before = (tmp_path / "deep" / "entry").read_bytes()

    def write_half(_, path, *__, **___):
        path.write_bytes(b"ha")
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(pd.DataFrame, "to_parquet", write_half)
    monkeypatch.setattr(pd.DataFrame, "to_csv", write_half)
    monkeypatch.setattr(json, "dumps", lambda *_, **__: write_half(None, tmp_path / "deep/.entry"))
    (tmp_path / "deep" / ".entry").touch()
    with pytest.raises(DatasetError) as caught:
        dataset.save(KINDS[kind][0])
    (tmp_path / "deep" / ".entry").unlink()

    assert "No space left on device" in describe_mistake(caught.value)
    assert (tmp_path / "deep" / "entry").read_bytes() == before
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["entry"]


def test_a_damaged_file_is_one_message_that_says_what_to_do(kind, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "entry").write_bytes(KINDS[kind][1])

    with pytest.raises(DatasetError) as caught:
        make(kind, tmp_path).load()

    message = describe_mistake(caught.value)
    assert message.startswith(f"{tmp_path / 'deep' / 'entry'}: the file is damaged")
    assert "kedro run --pipelines data" in message


def test_a_missing_file_says_to_run_the_pipeline_first(kind, tmp_path):
    with pytest.raises(DatasetError) as caught:
        make(kind, tmp_path).load()

    assert describe_mistake(caught.value).endswith("Run the pipeline that writes it first.")


def test_previews_are_short(tmp_path):
    for kind in (ParquetDataset, CSVDataset):
        dataset = make(kind, tmp_path / kind.__name__)
        dataset.save(TABLE)
        assert dataset.preview(nrows=1)["data"] == [["NA", 1]]
    values = make(JSONDataset, tmp_path)
    values.save({"ship": 1})
    assert json.loads(values.preview()) == {"ship": 1}


def test_the_catalog_writes_nothing_in_place(project_root):
    text = (project_root / "conf/base/catalog.yml").read_text(encoding="utf-8")
    kinds = {line.split()[1] for line in text.splitlines() if line.startswith("  type:")}

    # Figures are new files in each run, and nothing reads them back.
    assert {kind for kind in kinds if not kind.startswith("obbflow.")} == {
        "matplotlib.MatplotlibDataset"
    }
