"""Wiring of the data pipeline."""

from kedro.pipeline import Node, Pipeline

from obbflow.pipelines.data.nodes import (
    build_class_map,
    check_annotations,
    compute_class_weights,
    read_annotations,
    tile_images,
)


def create_pipeline() -> Pipeline:
    """Return the data pipeline: raw images and labels -> tiles, class map, class weights."""
    return Pipeline(
        [
            Node(
                read_annotations,
                inputs=[
                    "params:dataset",
                    "params:demo",
                    "params:paths",
                    "params:experiment",
                    "params:tiling",
                    "params:preprocessing",
                    "params:loss",
                ],
                outputs=["images", "raw_annotations", "reading_issues"],
                name="read_annotations",
            ),
            Node(
                check_annotations,
                inputs=[
                    "images",
                    "raw_annotations",
                    "reading_issues",
                    "params:dataset",
                ],
                outputs=["annotations", "annotation_issues"],
                name="check_annotations",
            ),
            Node(
                tile_images,
                inputs=[
                    "images",
                    "annotations",
                    "annotation_issues",
                    "params:dataset",
                    "params:tiling",
                    "params:paths",
                ],
                outputs=["tile_index", "tile_annotations", "data_issues"],
                name="tile_images",
            ),
            Node(
                build_class_map,
                inputs=["tile_index", "tile_annotations", "params:dataset"],
                outputs="class_map",
                name="build_class_map",
            ),
            Node(
                compute_class_weights,
                inputs=["tile_index", "tile_annotations", "class_map", "params:loss"],
                outputs="class_weights",
                name="compute_class_weights",
            ),
        ]
    )
