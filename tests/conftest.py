"""Fixtures that many tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]

settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Golden numbers, cases and real images, which are not part of the repository."""
    folder = Path(os.environ.get("OBBFLOW_SHARED") or ROOT.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"no shared folder at {folder}; OBBFLOW_SHARED names another place")
    return folder


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the settings of whoever runs the tests out of them."""
    for name in ("OBBFLOW_DATA_ROOT", "OBBFLOW_DATA_DIR", "OBBFLOW_DEBUG", "KEDRO_ENV"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def kedro_project(project_root: Path) -> Path:
    """The repository, bootstrapped: pipelines and settings are those of this project."""
    from kedro.framework.startup import bootstrap_project

    bootstrap_project(project_root)
    return project_root
