"""The scenes of Airbus data: tiles of Airbus Playground, and images of the Airbus aircraft sample.

Which tiles there are, is said by the split file, else by the images in the folder. Their labels
are in the annotations file, else in the GeoJSON files of the export folders.
"""

import functools
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from obbflow.config import DatasetSection
from obbflow.data.formats import airbus_csv, airbus_export
from obbflow.data.formats.airbus_labels import TileLabels
from obbflow.data.formats.airbus_split import Tile, read_split
from obbflow.data.formats.detect import describe_other_format
from obbflow.data.formats.pairing import walk
from obbflow.data.formats.source import (
    Issue,
    Scene,
    compose,
    make_issue,
    relative,
    shorten,
)
from obbflow.data.images import is_image_name
from obbflow.errors import DataError

_IMAGES = "images"  # where the aircraft sample has its annotated images


def find_scenes(root: Path, dataset: DatasetSection, issues: list[Issue]) -> list[Scene]:
    """Return the scenes of a data set from Airbus.

    With ``train_includes_val`` the tiles of the validation split are scenes of both splits.

    Args:
        root: The data set's folder.
        dataset: ``annotations_file``, ``split_file``, ``val_split_id``, ``train_includes_val`` and
            ``difficult_tags`` count.
        issues: Rows are added for tiles and labels that belong to nothing.

    Raises:
        DataError: If there are no labels, a file that is named is missing or cannot be read, none
            of the tiles is there, or ``train_includes_val`` is set without a split.
    """
    annotations = _locate(root, dataset.annotations_file, "annotations_file", "annotations.csv")
    split_file = _locate(root, dataset.split_file, "split_file", "split.csv")
    # Walked only where something asks: a split file may list all there is.
    list_tiles = functools.cache(lambda: list_images(root))
    by_name = functools.cache(lambda: _by_name(root, list_tiles()))
    tags = dataset.difficult_tags or ()
    if split_file is not None:
        tiles = read_split(root, split_file, by_name, dataset, issues)
    else:
        tiles = {name: Tile(None, airbus_export.name_group(name), None) for name in list_tiles()}
    if annotations is not None:
        labels = airbus_csv.find_labels(root, annotations, by_name, tags, issues)
    else:
        labels = airbus_export.find_labels(root, list_tiles(), tags, issues)
        if not labels:
            raise DataError(_describe_missing_labels(root))
    if split_file is None:  # what is annotated belongs to the data set, even if it is not there
        tiles |= {
            name: Tile(None, airbus_export.name_group(name), None)
            for name in labels
            if name not in tiles
        }
    _report_unlisted(tiles, labels, issues)
    tiles = _without_missing(root, tiles, labels, split_file, issues)
    if dataset.train_includes_val:
        return _train_on_all(root, tiles, labels, split_file, issues)
    return [_make_scene(root, name, tile, labels) for name, tile in tiles.items()]


def list_images(root: Path) -> list[str]:
    """Return all images of a data set as posix paths below its folder, in order of names.

    These are the images below images/ where there is such a folder; hidden ones are left out.
    """
    start = root / _IMAGES if (root / _IMAGES).is_dir() else root
    return [path.relative_to(root).as_posix() for path in walk(start) if is_image_name(path.name)]


def _locate(root: Path, given: Path | None, key: str, default: str) -> Path | None:
    """Return a file that is named or lies where it does by default; None without it."""
    path = root / (default if given is None else given.expanduser())
    if path.is_file():
        return path
    if given is not None:
        raise DataError(
            f"{path}: no such file; correct dataset.{key}, which counts from dataset.data_root"
        )
    return None


def _by_name(root: Path, tiles: list[str]) -> dict[str, str]:
    """Return images by their file name.

    Raises:
        DataError: If two have the same one.
    """
    result: dict[str, str] = {}
    clashes = []
    for tile in tiles:
        name = compose(PurePosixPath(tile).name)
        if name in result:
            clashes.append(f"{result[name]} and {tile}")
        result[name] = tile
    if clashes:
        raise DataError(
            f"{root}: two images of the same name, by which the CSV files call them: "
            f"{shorten(clashes)}. Rename or remove one of the two"
        )
    return result


def _describe_missing_labels(root: Path) -> str:
    hint = describe_other_format(root, "airbus_playground")
    return (
        f"{root}: no labels; there is neither annotations.csv nor an export with "
        "<dataset>/samples/<zone>/<image>/<tile>.jpg and <dataset>/labels/<zone>/<tile>.json."
        f"{hint or ' Set dataset.annotations_file, or dataset.data_root to another folder'}"
    )


def _report_unlisted(
    tiles: Mapping[str, Tile], labels: Mapping[str, TileLabels], issues: list[Issue]
) -> None:
    """Add an issue for each tile with labels that is not in the split file."""
    issues += [
        make_issue(
            labels[name].source,
            "not_in_split",
            f"{name} is not in the split file ({labels[name].count} of labels)",
            "left out",
            line=labels[name].line,
        )
        for name in sorted(labels.keys() - tiles.keys())
    ]


def _without_missing(
    root: Path,
    tiles: Mapping[str, Tile],
    labels: Mapping[str, TileLabels],
    split_file: Path | None,
    issues: list[Issue],
) -> dict[str, Tile]:
    """Return the tiles whose image is there; each of the others has an issue.

    Raises:
        DataError: If none is there.
    """
    there = {name: tile for name, tile in tiles.items() if (root / name).is_file()}
    for name in sorted(tiles.keys() - there.keys()):
        place = labels.get(name)
        count = place.count if place else "none"
        issues.append(
            make_issue(
                relative(root, split_file) if split_file else place.source if place else name,
                "missing_image",
                f"{name}: no such file ({count} of labels)",
                "dropped",
                line=tiles[name].line or (place.line if place else None),
                severity="error",
            )
        )
    if tiles and not there:
        raise DataError(
            f"{root}: none of the {len(tiles):,} tiles is there, such as {min(tiles)}. Paths in "
            "the CSV files count from dataset.data_root; set it to the folder they start at"
        )
    return there


def _train_on_all(
    root: Path,
    tiles: Mapping[str, Tile],
    labels: Mapping[str, TileLabels],
    split_file: Path | None,
    issues: list[Issue],
) -> list[Scene]:
    """Return every tile as one to train on, and those of the validation split once more."""
    if split_file is None:
        raise DataError(
            f"{root}: dataset.train_includes_val needs a split file, which says what to validate "
            "on; set dataset.split_file, or make one with obbflow airbus-csv"
        )
    monitored = {name: tile for name, tile in tiles.items() if tile.split == "val"}
    issues.append(
        make_issue(
            relative(root, split_file),
            "val_is_trained_on",
            f"{len(monitored):,} validation tiles are trained on as well "
            "(dataset.train_includes_val): their scores say nothing about new images",
            "kept",
            severity="info",
        )
    )
    scenes = [
        _make_scene(root, name, tile._replace(split="train"), labels)
        for name, tile in tiles.items()
    ]
    return scenes + [_make_scene(root, name, tile, labels) for name, tile in monitored.items()]


def _make_scene(root: Path, name: str, tile: Tile, labels: Mapping[str, TileLabels]) -> Scene:
    own = labels.get(name)
    stem = PurePosixPath(name).with_suffix("").as_posix()
    return Scene(
        image_id=compose(stem if tile.split is None else f"{tile.split}/{stem}"),
        image=root / name,
        split=tile.split,
        source="" if own is None else own.source,
        read=None if own is None else own.read,
        group=tile.group,
    )
