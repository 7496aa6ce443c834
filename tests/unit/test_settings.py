import importlib.metadata
import logging
from pathlib import Path

import pytest
import yaml
from kedro_viz.integrations import pypi
from rich.console import Console
from rich.logging import RichHandler

from obbflow import settings


@pytest.mark.parametrize("message", ["read [/data/x.png]", "scores [low] of 3"])
def test_brackets_in_our_messages_are_shown_as_they_are(message, capsys):
    handler = RichHandler(console=Console(width=200), markup=True)

    make = logging.getLogRecordFactory()
    handler.handle(make("obbflow.data", logging.INFO, "x.py", 1, message, (), None))

    assert message in capsys.readouterr().out


def test_markup_of_others_is_left_to_them():
    record = logging.getLogRecordFactory()("kedro.io", logging.INFO, "x.py", 1, "m", (), None)

    assert not hasattr(record, "markup")


def test_kedro_viz_asks_no_registry_for_newer_versions(monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("the network was used")

    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)

    assert str(pypi.get_latest_version()) == importlib.metadata.version("kedro-viz")


def test_telemetry_is_off(project_root: Path):
    assert settings.DISABLE_HOOKS_FOR_PLUGINS == ("kedro-telemetry",)
    consent = yaml.safe_load((project_root / ".telemetry").read_text(encoding="utf-8"))
    assert consent == {"consent": False}
    assert "kedro_telemetry" not in (project_root / "pyproject.toml").read_text(encoding="utf-8")


def test_records_that_are_made_without_a_name_still_work():
    assert logging.makeLogRecord({"msg": "sent over a socket"}).getMessage() == "sent over a socket"
