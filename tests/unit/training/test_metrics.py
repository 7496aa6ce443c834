import pytest

from obbflow.training.metrics import MetricsCsv, MetricTracker, order_columns, read_rows


def test_averages_are_weighted_by_batch_size():
    tracker = MetricTracker()
    tracker.update({"loss": 1.0}, weight=3)
    tracker.update({"loss": 5.0}, weight=1)
    assert tracker.average("loss") == pytest.approx(2.0)
    assert tracker.average("loss", window=1) == 5.0
    assert tracker.latest("loss") == 5.0
    assert tracker.largest("loss") == 5.0


def test_a_name_that_comes_only_sometimes_is_averaged_over_its_own_values():
    tracker = MetricTracker()
    tracker.update({"a": 1.0})
    tracker.update({"a": 3.0, "b": 7.0})
    assert tracker.summary() == {"a": 2.0, "b": 7.0}


def test_reset_forgets_everything():
    tracker = MetricTracker()
    tracker.update({"a": 1.0})
    tracker.reset()
    assert tracker.summary() == {}
    assert "a" not in tracker


def test_columns_are_grouped_and_otherwise_in_order_of_appearance():
    rows = [
        {"epoch_seconds": 1.0, "lr": 0.1, "train/loss_b": 1.0, "epoch": 1, "train/total_loss": 2.0},
        {"val/AP_ship": 0.1, "train/loss_a": 1.0, "val/mAP": 0.1, "grad_norm_mean": 1.0},
    ]
    assert order_columns(rows) == [
        "epoch",
        "train/total_loss",
        "train/loss_b",
        "train/loss_a",
        "val/mAP",
        "val/AP_ship",
        "lr",
        "grad_norm_mean",
        "epoch_seconds",
    ]


def test_numbers_survive_the_file_exactly_and_empty_cells_mean_not_computed(tmp_path):
    path = tmp_path / "metrics.csv"
    metrics = MetricsCsv(path)
    metrics.append({"epoch": 1, "train/total_loss": 0.1 + 0.2})
    metrics.append({"epoch": 2, "train/total_loss": 1 / 3, "val/mAP": 0.5})
    assert path.read_text().splitlines()[1] == "1,0.30000000000000004,"
    assert read_rows(path) == [
        {"epoch": 1, "train/total_loss": 0.1 + 0.2, "val/mAP": None},
        {"epoch": 2, "train/total_loss": 1 / 3, "val/mAP": 0.5},
    ]
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.csv"]


def test_resuming_replaces_the_rows_after_the_epoch(tmp_path):
    path = tmp_path / "metrics.csv"
    first = MetricsCsv(path)
    for epoch in (1, 2, 3):
        first.append({"epoch": epoch, "lr": float(epoch)})
    resumed = MetricsCsv.resume(path, epoch=2)
    resumed.append({"epoch": 3, "lr": 30.0, "val/mAP": 0.1})
    assert [row["lr"] for row in read_rows(path)] == [1.0, 2.0, 30.0]
    assert read_rows(path)[0]["val/mAP"] is None


@pytest.mark.parametrize("torn", ["3,0.", "3,0.25", "3"], ids=["half", "no line end", "one cell"])
def test_a_torn_last_line_is_dropped(tmp_path, caplog, torn):
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,lr\n1,0.5\n2,0.5\n" + torn)
    assert [row["epoch"] for row in MetricsCsv.resume(path, epoch=9).rows] == [1, 2]
    assert "the last line is incomplete" in caplog.text


@pytest.mark.parametrize(
    "damaged",
    ["2,0.5,7", "2", "", "2,o.5", "\x00\x00"],
    ids=["long", "short", "empty", "word", "0"],
)
def test_a_damaged_line_is_named_and_dropped(tmp_path, caplog, damaged):
    path = tmp_path / "metrics.csv"
    path.write_text(f"epoch,lr\n1,0.5\n{damaged}\n3,0.5\n")
    assert [row["epoch"] for row in MetricsCsv.resume(path, epoch=9).rows] == [1, 3]
    assert "metrics.csv:3: the line is damaged" in caplog.text


@pytest.mark.parametrize("content", [b"", b"\n", b"a,b\n1,2\n", b"\xff\xfe\x00,\n1,2\n"])
def test_a_file_that_is_no_table_of_epochs_gives_no_rows(tmp_path, content):
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    assert MetricsCsv.resume(path, epoch=9).rows == []


def test_a_fresh_file_has_no_rows(tmp_path):
    assert MetricsCsv.resume(tmp_path / "metrics.csv", epoch=3).rows == []


def test_the_table_keeps_whole_numbers_and_gaps():
    table = MetricsCsv("unused", [{"epoch": 1, "lr": 0.5}, {"epoch": 2, "val/mAP": 0.25}]).table()
    assert table["epoch"].tolist() == [1, 2]
    assert table["epoch"].dtype == "int64"
    assert table["val/mAP"].isna().tolist() == [True, False]
