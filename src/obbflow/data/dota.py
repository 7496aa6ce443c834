"""Reading a data set in DOTA layout into the tables ``images`` and ``annotations``.

The layouts, with ``same_folder`` without the folders images/ and labelTxt/ where they are missing:

    data_root/train/images, data_root/train/labelTxt, data_root/val/...     a split as given
    data_root/images, data_root/labelTxt                                    split by scene here
"""

import logging
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from obbflow.data.images import ImageFacts, is_image_name, probe_images
from obbflow.data.label_lines import LabelFile, read_label_file
from obbflow.data.progress import track
from obbflow.data.split import choose_val_scenes
from obbflow.errors import DataError
from obbflow.tables import ANNOTATIONS, CORNERS, DATA_ISSUES, IMAGES, make_table

logger = logging.getLogger(__name__)

SPLITS = ("train", "val")
IMAGE_FOLDER, LABEL_FOLDER = "images", "labelTxt"
_MANY = 10  # what is listed of a long list


@dataclass(frozen=True)
class DotaData:
    """The tables of a data set: ``images``, ``annotations`` as written, and reading ``issues``."""

    images: pd.DataFrame
    annotations: pd.DataFrame
    issues: pd.DataFrame


@dataclass(frozen=True)
class _Scene:
    """An image file and its label file."""

    image_id: str
    image: Path
    label: Path | None


def read_dota(root: Path, *, same_folder: bool, val_fraction: float, seed: int) -> DotaData:
    """Return the images, objects and reading issues of a data set in DOTA layout.

    Nothing is decoded: images give their header and the digest of their bytes. Bad lines, broken
    images and labels without an image are left out, each with a row in ``issues``; an image
    without a label file counts as background.

    Args:
        root: The data set's folder.
        same_folder: Whether label files lie beside their images.
        val_fraction: Share of scenes used for validation where there are no train/ and val/.
        seed: Of the choice of these scenes.

    Returns:
        The tables, rows sorted by image_id; ``ignore`` is False everywhere.

    Raises:
        DataError: If a folder is missing or has no image, two files claim one name, a label file
            is not text, or coordinates are fractions instead of px.
    """
    root = root.expanduser().resolve()
    issues: list[dict[str, Any]] = []
    has_splits = _has_split_folders(root)
    scenes: list[_Scene] = []
    for prefix, folder in _split_folders(root, has_splits=has_splits):
        scenes += _find_scenes(root, prefix, folder, same_folder=same_folder, issues=issues)
    if not scenes:
        raise DataError(
            f"{root}: no image in it; images end in .png, .jpg, .tif, .bmp or .webp and lie in "
            f"{'train/images' if has_splits else 'images'}/. Put them there, or set "
            "dataset.data_root to another folder"
        )
    scenes.sort(key=lambda scene: scene.image_id)
    facts = _probe(root, scenes, issues)
    scenes = [scene for scene in scenes if scene.image in facts]
    labels = _read_labels(root, scenes, issues)
    if has_splits:
        splits = {scene.image_id: scene.image_id.partition("/")[0] for scene in scenes}
    else:
        splits = _split_scenes(scenes, val_fraction, seed)
    images = _make_images(scenes, facts, labels, splits)
    _require_train_images(images, root)
    issues += _find_leaks(images, root)
    return DotaData(
        images, _make_annotations(root, scenes, labels), make_table(issues, DATA_ISSUES)
    )


def _has_split_folders(root: Path) -> bool:
    if not root.is_dir():
        what = "it is a file" if root.exists() else "there is no such folder"
        raise DataError(
            f"{root}: {what}; set dataset.data_root or the environment variable "
            "OBBFLOW_DATA_ROOT to the folder that holds train/ and val/, or images/ and labelTxt/"
        )
    return any((root / split).is_dir() for split in SPLITS)


def _split_folders(root: Path, *, has_splits: bool) -> list[tuple[str, Path]]:
    """Return the prefix of image ids and the folder of each split that there is."""
    if not has_splits:
        return [("", root)]
    return [(f"{name}/", root / name) for name in SPLITS if (root / name).is_dir()]


def _find_scenes(
    root: Path, prefix: str, folder: Path, *, same_folder: bool, issues: list[dict[str, Any]]
) -> list[_Scene]:
    """Return the scenes of one folder, each image with its label file."""
    inner = folder / IMAGE_FOLDER
    image_folder = inner if inner.is_dir() or not same_folder else folder
    label_folder = image_folder if same_folder else folder / LABEL_FOLDER
    found = _list_files(image_folder)
    images = _by_stem(path for path in found if is_image_name(path.name))
    if images and not label_folder.is_dir():
        raise DataError(_describe_missing_labels(folder, label_folder, found))
    labels = _by_stem(p for p in _list_files(label_folder) if p.suffix.lower() == ".txt")
    for path in found:
        if not is_image_name(path.name) and not (same_folder and path.suffix.lower() == ".txt"):
            message = f"{path.name} does not end like an image"
            issues.append(_issue(root, path, "not_an_image", message, "left out"))
    for stem in sorted(labels.keys() - images.keys()):
        message = f"no image {stem} for this label file"
        issues.append(_issue(root, labels[stem], "label_without_image", message, "left out"))
    for stem in sorted(images.keys() - labels.keys()):
        message = f"no label file {stem}.txt: the image counts as background"
        issue = _issue(root, images[stem], "image_without_label", message, "kept", prefix + stem)
        issues.append(issue)
    return [_Scene(prefix + stem, path, labels.get(stem)) for stem, path in images.items()]


def _list_files(folder: Path) -> list[Path]:
    """Return the files of a folder by name, hidden ones left out; nothing without the folder."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != ".")


def _by_stem(paths: Iterable[Path]) -> dict[str, Path]:
    """Return files by name without ending, in composed Unicode: tools differ in how they write é.

    Raises:
        DataError: If two files have the same name but for their ending.
    """
    result: dict[str, Path] = {}
    clashes = []
    for path in paths:
        stem = unicodedata.normalize("NFC", path.stem)
        if stem in result:
            clashes.append(f"{result[stem]} and {path.name}")
        result[stem] = path
    if clashes:
        raise DataError(
            f"{_shorten(clashes)}: two files with the same name but for the ending; images, "
            "labels and tiles belong together by this name. Rename or remove one of the two"
        )
    return result


def _describe_missing_labels(folder: Path, label_folder: Path, found: list[Path]) -> str:
    others = sorted(path.name for path in folder.iterdir() if path.is_dir())
    hint = f"rename the folder with the label files (there are: {', '.join(others)})"
    if any(path.suffix.lower() == ".txt" for path in found):
        hint = "set dataset.same_folder=true, as label files lie beside the images"
    return f"{label_folder}: no such folder, but there are images beside it; {hint}"


def _probe(
    root: Path, scenes: list[_Scene], issues: list[dict[str, Any]]
) -> dict[Path, ImageFacts]:
    """Return the facts of all images that can be used; there is at least one."""
    facts, broken = probe_images([scene.image for scene in scenes])
    for scene in scenes:
        if scene.image in broken:
            message = f"broken image: {broken[scene.image]}"
            issue = _issue(
                root, scene.image, "broken_image", message, "dropped", scene.image_id, "error"
            )
            issues.append(issue)
    if not facts:
        first, reason = next(iter(broken.items()))
        raise DataError(
            f"{first}: {reason}; none of the {len(broken):,} images can be used. "
            "Replace them, or set dataset.data_root to another folder"
        )
    return facts


def _read_labels(
    root: Path, scenes: list[_Scene], issues: list[dict[str, Any]]
) -> dict[str, LabelFile]:
    """Return the contents of the label files by image_id; an empty one where there is none."""
    labels = {}
    normalised = []
    for scene in track(scenes, len(scenes), "Reading labels"):
        if scene.label is None:
            labels[scene.image_id] = LabelFile()
            continue
        content = read_label_file(scene.label)
        labels[scene.image_id] = content
        if content.objects and content.is_normalised:
            normalised.append(str(scene.label))
        for bad in content.bad_lines:
            issue = _issue(
                root, scene.label, bad.kind, bad.message, "dropped", scene.image_id, "error"
            )
            issues.append({**issue, "line": bad.line})
    if normalised:
        raise DataError(
            f"{_shorten(normalised)}: all coordinates lie in 0..1, so they are normalised "
            "(fractions of the image's width and height); DOTA labels hold px. Multiply x by "
            "the width and y by the height of each image"
        )
    return labels


def _split_scenes(scenes: list[_Scene], val_fraction: float, seed: int) -> dict[str, str]:
    chosen = choose_val_scenes([scene.image_id for scene in scenes], val_fraction, seed)
    logger.info(
        "No train/ and val/ folders: chose %d of %d scenes for validation (seed %d): %s",
        len(chosen),
        len(scenes),
        seed,
        _shorten(sorted(chosen)) or "none",
    )
    return {scene.image_id: SPLITS[scene.image_id in chosen] for scene in scenes}


def _make_images(
    scenes: list[_Scene],
    facts: Mapping[Path, ImageFacts],
    labels: Mapping[str, LabelFile],
    splits: Mapping[str, str],
) -> pd.DataFrame:
    rows = [
        {
            "image_id": scene.image_id,
            "path": str(scene.image),
            "split": splits[scene.image_id],
            "gsd": labels[scene.image_id].gsd,
            **vars(facts[scene.image]),
        }
        for scene in scenes
    ]
    return make_table(rows, IMAGES)


def _make_annotations(
    root: Path, scenes: list[_Scene], labels: Mapping[str, LabelFile]
) -> pd.DataFrame:
    rows = [
        (scene.image_id, item.class_name, *item.corners, item.difficult, source, item.line)
        for scene in scenes
        if scene.label is not None
        for source in (_relative(root, scene.label),)
        for item in labels[scene.image_id].objects
    ]
    columns = ["image_id", "class_name", *CORNERS, "difficult", "source_file", "source_line"]
    table = pd.DataFrame(rows, columns=columns).assign(object_id=range(len(rows)), ignore=False)
    return make_table(table, ANNOTATIONS)


def _require_train_images(images: pd.DataFrame, root: Path) -> None:
    """Raise without a training image; say what happens without a validation image."""
    if not images["split"].eq("train").any():
        raise DataError(
            f"{root / 'train'}: no usable image to train on, but {len(images):,} in val; put "
            "images into train/images and their labels into train/labelTxt"
        )
    if not images["split"].eq("val").any():
        logger.warning(
            "%s: no image for validation, so no mAP will be computed; put images into "
            "val/images and their labels into val/labelTxt",
            root,
        )


def _find_leaks(images: pd.DataFrame, root: Path) -> list[dict[str, Any]]:
    """Return an issue for each validation image whose very bytes are also trained on."""
    train = images[images["split"] == "train"].drop_duplicates("sha256").set_index("sha256")
    copies = images[(images["split"] == "val") & images["sha256"].isin(train.index)]
    return [
        {
            "file": Path(row["path"]).relative_to(root).as_posix(),
            "image_id": row["image_id"],
            "severity": "warning",
            "kind": "same_image_in_train_and_val",
            "message": f"the same file as {train['image_id'][row['sha256']]}",
            "action": "kept",
        }
        for row in copies.to_dict("records")
    ]


def _issue(
    root: Path,
    path: Path,
    kind: str,
    message: str,
    action: str,
    image_id: str | None = None,
    severity: str = "warning",
) -> dict[str, Any]:
    return {
        "file": _relative(root, path),
        "image_id": image_id,
        "severity": severity,
        "kind": kind,
        "message": message,
        "action": action,
    }


def _relative(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _shorten(names: list[str]) -> str:
    """Return names with commas, of a long list the first ones."""
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return ", ".join(names[:_MANY]) + more
