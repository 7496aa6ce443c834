"""Writing a file so that it is there whole, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a scratch path beside ``target``; on success it takes the place of ``target``.

    Parent folders are made. When the block raises, ``target`` stays as it was and nothing is left
    behind. The scratch file starts with a dot and ends with the process id: Kedro never takes it
    for a version, and two processes never write the same one.

    Args:
        target: The file to be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield scratch
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
