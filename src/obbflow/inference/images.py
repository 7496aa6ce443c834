"""Which images to look at."""

import logging
from pathlib import Path

import pandas as pd

from obbflow.data.images import IMAGE_SUFFIXES, is_image_name, probe_images
from obbflow.errors import ConfigError, DataError
from obbflow.inference.tables import PREDICTION_IMAGES
from obbflow.tables import make_table

logger = logging.getLogger(__name__)

_IMAGE_FOLDER = "images"  # as in data sets; no part of an image's name


def find_images(root: Path | None) -> pd.DataFrame:
    """Return the images at ``root``, sorted by name.

    Args:
        root: An image file, or a folder that is searched with all folders in it; what starts with
            a dot is left out.

    Returns:
        Table ``PREDICTION_IMAGES``. Broken images are left out with a warning each.

    Raises:
        ConfigError: If ``root`` is None or does not exist.
        DataError: If there is no image, none is whole, or two have the same name.
    """
    if root is None:
        raise ConfigError(
            "production.images: not set. Name the folder (or file) to look at: "
            "--params production.images=FOLDER"
        )
    root = root.absolute()
    named = _name_images(_list_images(root), root)
    facts, broken = probe_images(list(named.values()))
    for path, reason in broken.items():
        logger.warning("%s: left out, %s", path, reason)
    if not facts:
        raise DataError(
            f"{root}: none of the {len(broken):,} images can be used, see the warnings. Replace "
            "them, or correct production.images."
        )
    rows = [
        (image_id, str(path), facts[path].width, facts[path].height)
        for image_id, path in named.items()
        if path in facts
    ]
    return make_table(rows, PREDICTION_IMAGES)


def _list_images(root: Path) -> list[Path]:
    """Return the image files at ``root``."""
    endings = ", ".join(IMAGE_SUFFIXES)
    if root.is_file():
        if not is_image_name(root.name):
            raise DataError(f"{root}: no image by its ending; known are {endings}")
        return [root]
    if not root.is_dir():
        raise ConfigError(
            f"production.images: {root} does not exist. Name an existing folder or file: "
            "--params production.images=FOLDER"
        )
    found = [
        path
        for path in root.rglob("*")
        if is_image_name(path.name)
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
    ]
    if not found:
        raise DataError(
            f"{root}: holds no image, also not in folders inside; known endings are {endings}. "
            "Correct production.images."
        )
    return found


def _name_images(paths: list[Path], root: Path) -> dict[str, Path]:
    """Return image id -> path, sorted by id."""
    base = root.parent if root.is_file() else root
    named: dict[str, Path] = {}
    for path in sorted(paths):
        *folders, file = path.relative_to(base).with_suffix("").parts
        image_id = "/".join([part for part in folders if part != _IMAGE_FOLDER] + [file])
        if image_id in named:
            raise DataError(
                f"{path}: has the same name as {named[image_id]} ({image_id!r}), so their "
                "detections could not be told apart. Rename or remove one of them."
            )
        named[image_id] = path
    return dict(sorted(named.items()))
