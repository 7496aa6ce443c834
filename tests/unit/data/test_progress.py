import logging

from obbflow.data import progress
from obbflow.data.progress import track


def test_short_loop_leaves_no_line(caplog):
    with caplog.at_level(logging.INFO):
        assert list(track("abc", 3, "Reading")) == ["a", "b", "c"]
    assert caplog.messages == []


def test_long_loop_logs_now_and_then(caplog, monkeypatch):
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with caplog.at_level(logging.INFO):
        assert list(track(range(6), 6, "Reading")) == list(range(6))
    assert caplog.messages == ["Reading: 3 of 6", "Reading: 6 of 6"]


def test_terminal_gets_a_bar(monkeypatch):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    assert list(track(iter("abc"), 3, "Reading")) == ["a", "b", "c"]
