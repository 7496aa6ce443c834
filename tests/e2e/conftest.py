"""The project in a folder of its own, its command line, and one smoke run that tests share."""

import hashlib
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

GUARD = Path(__file__).parent / "guard"


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    status: int
    output: str  # standard output, then standard error
    cpu_seconds: float


@dataclass(frozen=True)
class Project:
    """A copy of the project, without anybody's own settings and data."""

    root: Path

    @property
    def network_log(self):
        return self.root / "network.log"

    def environment(self, **variables):
        """Environment of a command: ours left out, the network refused."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("OBBFLOW_", "KEDRO_")) and name != "PYTHONPATH"
        }
        return kept | {
            "COLUMNS": "200",
            "OMP_NUM_THREADS": "1",  # for so small a detector threads cost more than they give
            "OBBFLOW_NETWORK_LOG": str(self.network_log),
            "PYTHONPATH": os.pathsep.join([str(GUARD), str(self.root / "src")]),
            **{name: str(value) for name, value in variables.items()},
        }

    def python(self, *arguments, **variables) -> Finished:
        """Run Python in the project's folder."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=self.root,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Finished(process.returncode, process.stdout + process.stderr, seconds)

    def kedro(self, *arguments, **variables) -> Finished:
        """Run a Kedro command in the project's folder."""
        return self.python("-m", "kedro", *arguments, **variables)

    def obbflow(self, *arguments, **variables) -> Finished:
        """Run a command of our own in the project's folder."""
        return self.python("-m", "obbflow", *arguments, **variables)


@dataclass(frozen=True)
class Run:
    """A finished run of the pipelines and where it wrote."""

    finished: Finished
    data_dir: Path

    def versions(self, entry):
        """Files of a versioned entry, oldest first."""
        layer = _layers()[entry]
        return sorted(path for path in self.data_dir.glob(f"{layer}/{entry}.*/*/{entry}.*"))

    def path(self, entry):
        """File of an entry, of its newest version."""
        plain = [
            path for path in self.data_dir.glob(f"{_layers()[entry]}/{entry}.*") if path.is_file()
        ]
        return plain[0] if plain else self.versions(entry)[-1]

    def checksums(self):
        """Return path -> checksum of every file."""
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in self.data_dir.rglob("*")
            if path.is_file()
        }


def _layers():
    text = (Path(__file__).parents[2] / "conf/base/catalog.yml").read_text(encoding="utf-8")
    return {
        name: entry["metadata"]["kedro-viz"]["layer"]
        for name, entry in yaml.safe_load(text).items()
    }


@pytest.fixture(scope="session")
def project(project_root, tmp_path_factory) -> Project:
    """The project in a folder whose name has a blank, as people's folders have."""
    root = tmp_path_factory.mktemp("e2e") / "my project"
    root.mkdir()
    for name in ("conf", "src", "notebooks"):
        shutil.copytree(
            project_root / name,
            root / name,
            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints"),
        )
    for name in ("pyproject.toml", ".kedro.yml", ".telemetry"):
        shutil.copy(project_root / name, root / name)
    shutil.rmtree(root / "conf" / "local")
    (root / "conf" / "local").mkdir()
    return Project(root)


@pytest.fixture(scope="session")
def smoke_run(project, tmp_path_factory) -> Run:
    """The whole pipeline, run once through the command line."""
    data_dir = tmp_path_factory.mktemp("run") / "my data"
    finished = project.kedro(
        "run", "--pipeline", "train", "--env", "smoke", OBBFLOW_DATA_DIR=data_dir
    )
    assert finished.status == 0, finished.output
    return Run(finished, data_dir)
