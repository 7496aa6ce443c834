"""The record of what a folder of tiles holds: which files belong to which image and settings.

``manifest.json`` is replaced as a whole when a run ends. Until then each finished image is a line
of ``manifest.journal``, so a run that was killed goes on where it was.
"""

import json
import logging
import os
from pathlib import Path
from typing import IO, Any

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
JOURNAL = "manifest.journal"
FORMAT_VERSION = 2
"""To be raised when tiles are cut in another way, so that all are cut again."""

Manifest = dict[str, dict[str, Any]]
"""image_id -> {"digest": of all that its tiles depend on, "tiles": {file below the store: its
bytes}, "stretched": the sample values that became 0 and 255, or None}."""


def read_manifest(store: Path) -> Manifest:
    """Return what the store holds; nothing when there is no readable record.

    Args:
        store: Folder of the tile files; it may be missing.
    """
    return _read_finished(store / MANIFEST) | _read_journal(store / JOURNAL)


def write_manifest(store: Path, manifest: Manifest) -> None:
    """Replace the record of the store as a whole, and drop the journal."""
    partial = store / f"{MANIFEST}.{os.getpid()}.partial"
    content = {"version": FORMAT_VERSION, "images": dict(sorted(manifest.items()))}
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    partial.replace(store / MANIFEST)
    (store / JOURNAL).unlink(missing_ok=True)


def has_journal(store: Path) -> bool:
    """Return whether a run wrote finished images there and did not end."""
    return (store / JOURNAL).exists()


def open_journal(store: Path) -> IO[str]:
    """Return the journal of a run, to be written by `note_image`; earlier lines stay."""
    journal = (store / JOURNAL).open("a", encoding="utf-8")
    journal.write("\n")  # ends a line that a killed run left unfinished
    return journal


def note_image(journal: IO[str], image_id: str, entry: dict[str, Any]) -> None:
    """Note that the tiles of an image are there."""
    journal.write(json.dumps([FORMAT_VERSION, image_id, entry], ensure_ascii=False) + "\n")
    journal.flush()


def _read_finished(path: Path) -> Manifest:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        logger.warning("%s is not readable JSON: cutting all tiles again", path)
        return {}
    return content["images"] if content.get("version") == FORMAT_VERSION else {}


def _read_journal(path: Path) -> Manifest:
    """Return the finished images of a run that did not end; lines that are not whole are none."""
    if not path.is_file():
        return {}
    manifest: Manifest = {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            version, image_id, entry = json.loads(line)
        except ValueError:  # the process was ended while it wrote
            logger.info("%s:%d: not written to its end; that image is cut again", path, number)
            continue
        if version == FORMAT_VERSION:
            manifest[image_id] = entry
    return manifest
