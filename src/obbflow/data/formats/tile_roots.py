"""Ready-made tiles: folders of images and DOTA labels that are trained on as they are."""

from collections.abc import Sequence
from pathlib import Path

from obbflow.config import DatasetSection
from obbflow.data.formats import dota
from obbflow.data.formats.source import SPLITS, Issue, Scene
from obbflow.errors import DataError


def find_tiles(dataset: DatasetSection, issues: list[Issue]) -> list[Scene]:
    """Return the tiles of all ``train_tiles_dirs`` and ``val_tiles_dirs``, as one union.

    The id of a tile is its split, the name of its root and its own name; roots of one name have as
    many of their parents before it as tell them apart. So ids do not depend on the order of roots.

    Args:
        dataset: Section ``dataset``.
        issues: Rows are added for files that belong to nothing.

    Raises:
        DataError: If a root is missing, named twice for a split, or has no image.
    """
    roots = {
        split: [folder.expanduser().resolve() for folder in dataset.tile_roots(split)]
        for split in SPLITS
    }
    for split, folders in roots.items():
        _require_folders(split, folders)
    names = _shortest_names([folder for folders in roots.values() for folder in folders])
    scenes = []
    for split, folders in roots.items():
        for folder in folders:
            tiles = dota.find_tiles(folder, f"{split}/{names[folder]}/", split, dataset, issues)
            if not tiles:
                raise DataError(
                    f"{folder}: no image in it; images and their label files lie in images/ and "
                    f"labelTxt/, or side by side. Correct dataset.{split}_tiles_dirs"
                )
            scenes += tiles
    return scenes


def _require_folders(split: str, folders: Sequence[Path]) -> None:
    key = f"dataset.{split}_tiles_dir or {split}_tiles_dirs"
    for number, folder in enumerate(folders):
        if not folder.is_dir():
            what = "it is a file" if folder.exists() else "there is no such folder"
            raise DataError(f"{folder}: {what}; correct {key}")
        if folder in folders[:number]:
            raise DataError(f"{folder}: named twice in {key}; leave one out")


def _shortest_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Return for each folder the shortest end of its path that no other one has."""
    different = set(folders)
    names = {}
    for folder in different:
        parts = folder.parts[1:]
        for length in range(1, len(parts) + 1):
            name = "/".join(parts[-length:])
            if sum(f"/{other.as_posix()}".endswith(f"/{name}") for other in different) == 1:
                break
        names[folder] = name
    return names
