"""What `make setup` does about the environment, with a Python that only says what it did."""

import re
import shutil
import subprocess

import pytest
from hypothesis import settings

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make here")

FAKE = """#!/bin/sh
case "$1" in
  -c) echo 3.11 ;;
  *) echo "$(basename "$(dirname "$0")") $*" >> "$LOG" ;;
esac
"""


@pytest.fixture
def setup(project_root, tmp_path):
    """Run `make setup` in a folder, and return the Python commands that it ran."""

    def run(folder):
        log = tmp_path / "log"
        log.write_text("", encoding="utf-8")
        subprocess.run(
            ["make", "setup", f"PYTHON={tmp_path / 'system' / 'python'}"],
            cwd=folder,
            env={"LOG": str(log), "PATH": "/usr/bin:/bin"},
            check=True,
            capture_output=True,
        )
        return log.read_text(encoding="utf-8").splitlines()

    folder = tmp_path / "project"
    for python in (tmp_path / "system" / "python", folder / ".venv" / "bin" / "python"):
        python.parent.mkdir(parents=True)
        python.write_text(FAKE, encoding="utf-8")
        python.chmod(0o755)
    (folder / ".venv/bin/activate").write_text(f'VIRTUAL_ENV="{folder}/.venv"\n', encoding="utf-8")
    shutil.copy(project_root / "Makefile", folder)
    for name in ("requirements.lock", "pyproject.toml"):
        (folder / name).touch()
    return run, folder


def is_made_anew(commands):
    return "system -m venv --clear .venv" in commands


def test_an_environment_is_used_again_until_the_lock_file_changes(setup):
    run, folder = setup
    first = run(folder)
    assert len(first) == 2
    assert not is_made_anew(first)  # the packages are brought up to date, no more
    assert run(folder) == []
    (folder / "requirements.lock").write_text("torch==2\n", encoding="utf-8")
    assert run(folder) == first


def test_an_environment_that_was_moved_is_made_anew(setup):
    run, folder = setup
    run(folder)
    moved = folder.rename(folder.with_name("moved project"))
    assert is_made_anew(run(moved))


def test_an_environment_without_its_scripts_is_made_anew(setup):
    run, folder = setup
    (folder / ".venv/bin/activate").unlink()
    assert is_made_anew(run(folder))


def test_the_checks_draw_the_same_examples_each_time(project_root):
    script = (project_root / ".ci" / "run").read_text(encoding="utf-8")

    assert re.search(r"^export CI=1\b", script, re.MULTILINE)
    assert settings.get_profile("ci").derandomize
