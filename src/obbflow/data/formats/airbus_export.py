"""Labels of Airbus Playground's export folders: GeoJSON in px, one file a tile.

    <dataset>/samples/<zone>/<image>/<tile>.jpg
    <dataset>/labels/<zone>/<tile>.json

The file of a tile is a FeatureCollection. A feature's ``properties.tags`` name its class; a feature
with ``properties.mask`` outlines the tile and is no object.
"""

import json
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from obbflow.data.formats.airbus_labels import TileLabels, read_tags
from obbflow.data.formats.pairing import walk
from obbflow.data.formats.polygons import Fault, Point, corners_of, read_ring
from obbflow.data.formats.rotated import shorten_value
from obbflow.data.formats.source import (
    BadLine,
    Issue,
    LabelFile,
    LabelFileError,
    LabelLine,
    compose,
    make_issue,
    read_text,
    relative,
    shorten,
)
from obbflow.data.images import ImageFacts
from obbflow.errors import DataError

SAMPLES, LABELS = "samples", "labels"


def is_export(tile: str) -> bool:
    """Return whether a path below the data set's folder is that of a tile in an export."""
    return SAMPLES in PurePosixPath(tile).parts[:-1]


def name_group(tile: str) -> str | None:
    """Return dataset, zone and image of a tile, None when its path does not tell.

    Example:
        >>> name_group("paris/samples/north/i1/t1.jpg")
        'paris/north/i1'
    """
    parts = PurePosixPath(tile).parts
    if not is_export(tile):
        return None
    at = parts.index(SAMPLES)
    return "/".join(parts[:at] + parts[at + 1 : -1]) or None


def find_labels(
    root: Path, tiles: Iterable[str], difficult_tags: Collection[str], issues: list[Issue]
) -> dict[str, TileLabels]:
    """Return the labels of each tile that has a label file.

    Args:
        root: The data set's folder.
        tiles: Paths below it, posix.
        difficult_tags: Tags that mark an object difficult.
        issues: Rows are added for label files without a tile.

    Raises:
        DataError: If two tiles share one label file.
    """
    tiles = [tile for tile in tiles if is_export(tile)]
    files: dict[str, Path] = {}
    for folder in {PurePosixPath(tile[: tile.index(f"{SAMPLES}/")]) for tile in tiles}:
        for path in walk(root / folder / LABELS):
            if path.suffix.lower() == ".json":
                name = path.with_suffix(".json").relative_to(root).as_posix()
                files[compose(name)] = path
    labels: dict[str, TileLabels] = {}
    tile_of: dict[str, str] = {}
    clashes = []
    for tile in tiles:
        name = _label_name(tile)
        if name not in files:
            continue
        if name in tile_of:
            clashes.append(f"{tile_of[name]} and {tile}")
        tile_of[name] = tile
        read = partial(_read_tile, files[name], frozenset(difficult_tags))
        labels[tile] = TileLabels(relative(root, files[name]), None, "1 file", read)
    if clashes:
        raise DataError(
            f"{root}: two tiles with the same label file: {shorten(clashes)}. Labels lie in "
            f"{LABELS}/<zone>/<tile>.json, so give each tile of a zone a name of its own"
        )
    for name in sorted(files.keys() - tile_of.keys()):
        message = "no tile in samples/ for this label file"
        issues.append(
            make_issue(relative(root, files[name]), "label_without_image", message, "left out")
        )
    return labels


def read_file(path: Path, difficult_tags: Collection[str]) -> LabelFile:
    """Return the objects of a GeoJSON file; see ``parse_features``.

    Raises:
        LabelFileError: If the file cannot be read, or is no GeoJSON.
    """
    content = parse_features(read_text(path), difficult_tags)
    if isinstance(content, Fault):
        raise LabelFileError(path, content.message, "export it again or remove it")
    return content


def parse_features(text: str, difficult_tags: Collection[str]) -> LabelFile | Fault:
    """Return the objects of a GeoJSON text; ``line`` is the number of the feature, from 1.

    An outer ring of four corners is kept as it is; of any other outline, and of a MultiPolygon, it
    is the smallest rectangle around it. Holes do not count.

    Args:
        text: A FeatureCollection.
        difficult_tags: Tags that mark an object difficult.

    Returns:
        The objects and the features that are none, or why the whole text cannot be used.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Fault("not_json", f"no JSON ({error})")
    features = content.get("features") if isinstance(content, dict) else None
    if not isinstance(features, list):
        return Fault("not_geojson", "no GeoJSON: it holds no list of features")
    result = LabelFile()
    for number, feature in enumerate(features, start=1):
        found = _parse_feature(feature, difficult_tags)
        if isinstance(found, Fault):
            result.bad_lines.append(BadLine(number, *found))
        elif found is not None:
            result.objects.append(LabelLine(number, *found))
    return result


def _read_tile(path: Path, difficult_tags: Collection[str], _: ImageFacts) -> LabelFile:
    return read_file(path, difficult_tags)


def _label_name(tile: str) -> str:
    """Return the path of a tile's label file, composed, below the data set's folder."""
    parts = PurePosixPath(tile).parts
    at = parts.index(SAMPLES)
    zone = parts[at + 1 : at + 2] if at + 2 < len(parts) else ()
    name = PurePosixPath(*parts[:at], LABELS, *zone, f"{PurePosixPath(tile).stem}.json")
    return compose(name.as_posix())


def _parse_feature(
    feature: Any,  # noqa: ANN401 - what a JSON parser gives
    difficult_tags: Collection[str],
) -> tuple[tuple[float, ...], str, bool] | Fault | None:
    """Return corners, class and difficulty; None for the outline of the tile."""
    if not isinstance(feature, dict):
        return Fault("not_geojson", "this is no feature")
    properties = feature.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    if properties.get("mask") is True:
        return None
    tags = properties.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return Fault("bad_class", "properties.tags is no list of words")
    named = read_tags(tags, difficult_tags)
    if isinstance(named, Fault):
        return named
    rings = _outer_rings(feature.get("geometry"))
    return rings if isinstance(rings, Fault) else (corners_of(rings), *named)


def _outer_rings(geometry: Any) -> list[list[Point]] | Fault:  # noqa: ANN401 - JSON
    """Return the outer rings of a Polygon or MultiPolygon."""
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind not in ("Polygon", "MultiPolygon"):
        return Fault(
            "not_a_polygon", f"the geometry is {shorten_value(kind)}, no Polygon or MultiPolygon"
        )
    polygons = geometry.get("coordinates")
    polygons = [polygons] if kind == "Polygon" else polygons
    if not isinstance(polygons, list) or not polygons:
        return Fault("not_a_polygon", f"a {kind} without coordinates")
    rings = []
    for polygon in polygons:
        if not isinstance(polygon, list) or not polygon:
            return Fault("not_a_polygon", f"a {kind} without coordinates")
        ring = read_ring(polygon[0])
        if isinstance(ring, Fault):
            return ring
        rings.append(ring)
    return rings
