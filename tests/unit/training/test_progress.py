import io
import logging

import pytest
from rich.console import Console
from rich.logging import RichHandler

from obbflow.training import progress
from obbflow.training.progress import EpochProgress


@pytest.fixture
def root_handler():
    """Put a rich handler in place of those of the root logger."""
    stream = io.StringIO()
    handler = RichHandler(console=Console(file=stream, force_terminal=True, width=100))
    root = logging.getLogger()
    former = root.handlers[:]
    root.handlers = [handler]
    yield handler, stream
    root.handlers = former


def walk(shown: EpochProgress, batches: int = 4) -> None:
    with shown.epoch(2, 9, batches):
        for _ in range(batches):
            shown.advance(1, images=8, loss=0.5)


def test_the_bar_is_drawn_on_the_console_of_the_log(root_handler):
    shown = EpochProgress("auto")
    assert shown.mode == "rich"
    walk(shown)
    text = root_handler[1].getvalue()
    assert "Epoch 2/9" in text
    assert "loss 0.5" in text


def test_without_a_terminal_lines_come_now_and_then(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    shown = EpochProgress("auto")
    assert shown.mode == "plain"
    walk(shown)
    assert caplog.records == []  # shorter than the time between two lines
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    walk(shown)
    assert len(caplog.records) == 4
    assert caplog.records[1].message.startswith("Epoch 2/9: batch 2 of 4, loss 0.5, ")


def test_nothing_is_shown_when_asked(root_handler, caplog):
    walk(EpochProgress("none"))
    assert root_handler[1].getvalue() == ""
    assert caplog.records == []
