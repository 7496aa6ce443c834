"""The run record: what it takes to do a run again, and what came out of it."""

import hashlib
import os
import platform
import resource
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import obbflow
from obbflow.training.device import Hardware, Runtime
from obbflow.training.loop import TrainingOutcome

_LIBRARIES = ("torchvision", "numpy", "pandas", "pillow", "shapely", "kedro", "pydantic")
_GIT_SECONDS = 10


def data_hash(
    tile_index: pd.DataFrame, tile_annotations: pd.DataFrame, class_map: Mapping[str, int]
) -> str:
    """Return a fingerprint of tiles, labels and classes; the folder they lie in does not count."""
    files = tile_index["path"].map(lambda path: Path(path).name)
    digest = hashlib.sha256()
    for table in (tile_index.assign(path=files), tile_annotations):
        digest.update(",".join(table.columns).encode())
        digest.update(pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes())
    digest.update(repr(sorted(class_map.items())).encode())
    return digest.hexdigest()


def describe_environment(runtime: Runtime, hardware: Hardware) -> dict[str, Any]:
    """Return code version, libraries, host, devices and command line, as plain data."""
    return {
        "package_version": obbflow.__version__,
        "git": git_state(Path(__file__).parent),
        "python": platform.python_version(),
        "libraries": library_versions(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "devices": {
            "cpus": hardware.cpus,
            "cuda": [device.name for device in hardware.cuda],
            "used": str(runtime.device),
            "precision": runtime.precision,
            "threads": min(torch.get_num_threads(), runtime.threads or sys.maxsize),
        },
        "command_line": list(sys.argv),
        "working_directory": str(Path.cwd()),
    }


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that results depend on."""
    versions = {name: metadata.version(name) for name in _LIBRARIES}
    return {"torch": str(torch.__version__), **versions}  # torch's own names its CUDA


def git_state(folder: Path) -> dict[str, Any]:
    """Return commit, describe, dirty, branch and date of the code; all None outside git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return dict.fromkeys(("commit", "describe", "dirty", "branch", "date"))
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": commit,
        "describe": _git(folder, "describe", "--always", "--tags", "--dirty"),
        "dirty": bool(changes),
        "branch": _git(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        "date": _git(folder, "show", "--no-patch", "--format=%cI", "HEAD"),
    }


def describe_results(
    outcome: TrainingOutcome, *, first_epoch: int, session_seconds: float
) -> dict[str, Any]:
    """Return the facts of a finished history: epochs, best, times, peak memory.

    Args:
        outcome: Of the last session of the training.
        first_epoch: With which that session began.
        session_seconds: How long it took.

    Returns:
        Plain data. ``seconds`` is the time of all sessions; of the earlier ones, that of the epochs
        that this history holds.
    """
    earlier = [row for row in outcome.history if (row["epoch"] or 0) < first_epoch]
    before = sum(float(row["epoch_seconds"] or 0) for row in earlier)
    seconds = [float(row["epoch_seconds"] or 0) for row in outcome.history]
    rates = [float(row["images_per_second"] or 0) for row in outcome.history]
    best = outcome.best
    return {
        "epochs_completed": outcome.history[-1]["epoch"],
        "best": {"metric": best.metric, "value": best.value, "epoch": best.epoch} if best else None,
        "last": dict(outcome.history[-1]),
        "seconds": before + session_seconds,
        "timing": {
            "epoch_seconds": seconds,
            "mean": sum(seconds) / len(seconds),
            "min": min(seconds),
            "max": max(seconds),
            "images_per_second": sum(rates) / len(rates),
        },
        "nonfinite_steps": sum(int(row["nonfinite_steps"] or 0) for row in outcome.history),
        "peak_memory_bytes": peak_memory_bytes(),
    }


def peak_memory_bytes() -> dict[str, int | None]:
    """Return the largest memory of this process so far, and of the device (None on a CPU)."""
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    on_device = torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"host": host, "device": on_device}


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints; None without git, outside a repository, or when it hangs."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
