"""Nodes of the data pipeline. What they call is imported when they run: it may import torch."""

import logging
import time
from typing import TYPE_CHECKING

import pandas as pd

from obbflow.config import (
    DatasetSection,
    DemoSection,
    ExperimentSection,
    LossSection,
    PathsSection,
    PreprocessingSection,
    TilingSection,
)
from obbflow.tables import DATA_ISSUES, is_object, make_table

if TYPE_CHECKING:
    from obbflow.data.formats import DataTables

logger = logging.getLogger(__name__)


def read_annotations(
    dataset: DatasetSection,
    demo: DemoSection,
    paths: PathsSection,
    experiment: ExperimentSection,
    tiling: TilingSection,
    preprocessing: PreprocessingSection,
    loss: LossSection,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return ``images``, ``raw_annotations`` and ``reading_issues``.

    Draws the demo scenes first where they are the data set. Whatever in images and labels, or in
    settings that name classes, would stop a later node is raised here, before an earlier run's
    output is replaced; but pixels are decoded once, when tiles are cut.
    """
    from obbflow.data.formats import read_data_set

    started = time.perf_counter()
    root = dataset.data_root
    if dataset.draws_demo:
        from obbflow.data.demo import write_demo_scenes

        root = paths.demo_scenes
        write_demo_scenes(
            root, seed=demo.seed, train_sizes=demo.train_sizes, val_sizes=demo.val_sizes
        )
    data = read_data_set(root, dataset, experiment.seed)
    counts = _require_usable(data, dataset, tiling)
    _require_known_classes(counts, preprocessing, loss)
    by_split = data.images["split"].value_counts()
    logger.info(
        "Read %s objects on %s training and %s validation images in %.1f s",
        f"{len(data.annotations):,}",
        f"{by_split.get('train', 0):,}",
        f"{by_split.get('val', 0):,}",
        time.perf_counter() - started,
    )
    return data.images, data.annotations, data.issues


def check_annotations(
    images: pd.DataFrame,
    raw_annotations: pd.DataFrame,
    reading_issues: pd.DataFrame,
    dataset: DatasetSection,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return ``annotations`` that count, and ``annotation_issues``: those of reading and checks."""
    from obbflow.data.checks import check_annotations as check
    from obbflow.data.class_rules import require_objects, warn_about_unused_names
    from obbflow.data.statistics import count_by_split, describe_counts

    annotations, issues = check(images, raw_annotations, reading_issues, dataset)
    require_objects(images, annotations, dataset.place, issues)
    warn_about_unused_names(raw_annotations, dataset)
    _log_issues(issues)
    objects = annotations[is_object(annotations)]
    logger.info(
        "Checked %s objects: kept %s of %d classes and %s ignore regions",
        f"{len(raw_annotations):,}",
        f"{len(objects):,}",
        objects["class_name"].nunique(),
        f"{annotations['ignore'].sum():,}",
    )
    logger.info("Objects by split: %s", describe_counts(count_by_split(images, annotations)))
    return annotations, issues


def tile_images(
    images: pd.DataFrame,
    annotations: pd.DataFrame,
    annotation_issues: pd.DataFrame,
    dataset: DatasetSection,
    tiling: TilingSection,
    paths: PathsSection,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Cut what changed; return ``tile_index``, ``tile_annotations`` and ``data_issues``.

    The issues are ``annotation_issues`` and a row for each image whose pixels turn out to be
    damaged: such an image has no tile.

    Raises:
        DataError: If no training tile shows enough of an object: no file is changed then. If images
            are damaged, and ``dataset.strict`` is set or no training tile shows an object without
            them.
    """
    from obbflow.data.tile_store import tile_data_set, tiles_in_use
    from obbflow.data.tile_tables import require_tile_with_object

    started = time.perf_counter()
    require_tile_with_object(
        images,
        annotations,
        dataset.place,
        dataset.overlap,
        tiling,
    )
    in_use = tiles_in_use(paths.tile_index)
    tiled = tile_data_set(images, annotations, dataset, tiling, paths.tiles, in_use=in_use)
    _log_issues(tiled.issues)
    report = tiled.report
    logger.info(
        "Cut %s images into %s tiles (%s images unchanged, %s stale files removed) in %.1f s",
        f"{report.n_images:,}",
        f"{report.n_tiles:,}",
        f"{report.n_unchanged:,}",
        f"{report.n_removed:,}",
        time.perf_counter() - started,
    )
    geometry = report.geometry
    logger.info(
        "Checked the geometry: of %s objects that fit into the overlap %s are whole on a tile, "
        "and come back to within %.1e px",
        f"{geometry.n_fitting:,}",
        f"{geometry.n_whole:,}",
        geometry.largest_error,
    )
    issues = make_table(pd.concat([annotation_issues, tiled.issues]), DATA_ISSUES)
    return tiled.tile_index, tiled.tile_annotations, issues.reset_index(drop=True)


def build_class_map(
    tile_index: pd.DataFrame,
    tile_annotations: pd.DataFrame,
    dataset: DatasetSection,
) -> dict[str, int]:
    """Return class name -> id, 1..C, of the objects on training tiles."""
    from obbflow.data.class_map import map_classes

    class_map = map_classes(tile_index, tile_annotations, dataset.place)
    logger.info("Mapped %d classes: %s", len(class_map), ", ".join(class_map))
    return class_map


def compute_class_weights(
    tile_index: pd.DataFrame,
    tile_annotations: pd.DataFrame,
    class_map: dict[str, int],
    loss: LossSection,
) -> pd.DataFrame:
    """Return the class weight table, one row a class of ``class_map``, in the order of ids."""
    from obbflow.data.class_map import count_objects
    from obbflow.data.class_weights import weigh_classes

    table = weigh_classes(
        count_objects(tile_index, tile_annotations, "train"),
        class_map,
        method=loss.class_weight_method,
        beta=loss.class_weight_beta,
        overrides=loss.class_weight_overrides,
    )
    logger.info(
        "Weighed %d classes by %s from %s training objects: %.2f to %.2f",
        len(table),
        loss.class_weight_method,
        f"{table['count'].sum():,}",
        table["weight"].min(),
        table["weight"].max(),
    )
    return table


def _require_usable(
    data: "DataTables", dataset: DatasetSection, tiling: TilingSection
) -> "pd.Series[int]":
    """Return the number of training objects by class; raise what later nodes would raise."""
    from obbflow.data.checks import check_annotations as check
    from obbflow.data.class_rules import require_objects
    from obbflow.data.strict import require_no_errors
    from obbflow.data.tile_tables import require_tile_with_object

    annotations, issues = check(data.images, data.annotations, data.issues, dataset)
    if dataset.strict:
        require_no_errors(issues, dataset.place)
    require_objects(data.images, annotations, dataset.place, issues)
    require_tile_with_object(
        data.images,
        annotations,
        dataset.place,
        dataset.overlap,
        tiling,
    )
    train = data.images.loc[data.images["split"] == "train", "image_id"]
    objects = annotations[annotations["image_id"].isin(train) & is_object(annotations)]
    return objects["class_name"].value_counts().sort_index()


def _require_known_classes(
    counts: "pd.Series[int]", preprocessing: PreprocessingSection, loss: LossSection
) -> None:
    """Raise what these settings would raise when they meet the class map."""
    from obbflow.data.class_weights import weigh_classes
    from obbflow.data.transforms import TrainTransform

    class_map = {str(name): number for number, name in enumerate(counts.index, start=1)}
    TrainTransform(preprocessing, class_map)
    weigh_classes(
        counts,
        class_map,
        method=loss.class_weight_method,
        beta=loss.class_weight_beta,
        overrides=loss.class_weight_overrides,
    )


def _log_issues(issues: pd.DataFrame) -> None:
    """Log a line a kind of issue, with its number and the first place."""
    for (severity, kind), group in issues.groupby(["severity", "kind"], sort=True):
        first = group.iloc[0]
        place = "" if pd.isna(first["file"]) else str(first["file"])
        place += "" if pd.isna(first["line"]) else f":{first['line']}"
        logger.log(
            logging.INFO if severity == "info" else logging.WARNING,
            "%s: %s in data_issues, first: %s%s (%s)",
            str(kind).replace("_", " "),
            f"{len(group):,}",
            f"{place}: " if place else "",
            first["message"],
            first["action"],
        )
