"""The state of a run directory: what was trained in it, how far, and by whom."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from obbflow.config.tiling import WORK_KEYS
from obbflow.errors import TrainingError

STATUS_FILE = "status.json"
RUNNING, FINISHED, FAILED = "running", "finished", "failed"

# Parameters that do not change the result of a training: whole sections, and single keys.
_FREE_SECTIONS = ("paths", "checkpoint", "tensorboard")
_FREE_KEYS = {
    "dataset": ("data_root",),
    "training": ("progress_bar",),
    "data_loader": ("num_workers", "pin_memory"),
    "tiling": WORK_KEYS,
}
# Of section checkpoint: the weights that a training starts from decide its result too.
_START_KEYS = (
    "load_from_checkpoint",
    "load_from_experiment",
    "resume_from_checkpoint_epoch",
    "load_include_prefixes",
    "load_exclude_prefixes",
)


def deciding_settings(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the settings that decide the result of a training, where it starts aside.

    Paths, checkpoint, TensorBoard, progress and the numbers of processes are left out.
    """
    return {
        name: {key: value for key, value in values.items() if key not in _FREE_KEYS.get(name, ())}
        for name, values in sections.items()
        if name not in _FREE_SECTIONS
    }


def changed_settings(
    stored: Mapping[str, Mapping[str, Any]], sections: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return the deciding settings in which ``sections`` differs: "section.key old -> new".

    Sections and keys that only one of them has are not compared.
    """
    return [
        f"{name}.{key} {stored[name][key]!r} -> {value!r}"
        for name, values in deciding_settings(sections).items()
        for key, value in values.items()
        if key in stored.get(name, {}) and stored[name][key] != value
    ]


def configuration_hash(sections: Mapping[str, Mapping[str, Any]], data_hash: str) -> str:
    """Return a fingerprint of everything that decides the result of a training.

    Args:
        sections: Resolved configuration. `deciding_settings` count, and which weights it starts
            from.
        data_hash: Of the tiles and labels; the folder they lie in does not count.
    """
    checkpoint = sections.get("checkpoint", {})
    start = {key: checkpoint.get(key) for key in _START_KEYS}
    text = json.dumps([deciding_settings(sections), start, data_hash], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def read_status(run_dir: Path) -> dict[str, Any] | None:
    """Return the status of a run directory, None if it has none."""
    return read_json(run_dir / STATUS_FILE)


def update_status(run_dir: Path, **changes: Any) -> None:  # noqa: ANN401  (plain JSON data)
    """Change entries of the status of a run directory, atomically."""
    write_json({**(read_status(run_dir) or {}), **changes}, run_dir / STATUS_FILE)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a JSON document, None if there is no file."""
    if not path.is_file():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Write plain data through a temporary file; the folder is made when it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    scratch.replace(path)


@contextmanager
def run_lock(run_dir: Path) -> Iterator[None]:
    """Keep a run directory for this process; the system frees it however the process ends.

    Raises:
        TrainingError: If another process is training in it.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / ".lock").open("w", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TrainingError(
                f"{run_dir}: another process is training in this folder. Wait for it or stop it; "
                "without checkpoint.discover_previous_run a new run is started beside it."
            ) from error
        yield
