"""Evaluation: best checkpoint and validation tiles -> detections and scores."""

from kedro.pipeline import Node, Pipeline

from obbflow.pipelines.evaluation.nodes import compute_final_map


def create_pipeline(**kwargs: object) -> Pipeline:  # noqa: ARG001  (Kedro's signature)
    """Return the evaluation pipeline."""
    return Pipeline(
        [
            Node(
                compute_final_map,
                inputs=[
                    "best_checkpoint",
                    "tile_index",
                    "tile_annotations",
                    "class_map",
                    "params:experiment",
                    "params:dataset",
                    "params:tiling",
                    "params:preprocessing",
                    "params:data_loader",
                    "params:model",
                    "params:training",
                    "params:evaluation",
                ],
                outputs=["detections", "final_metrics", "class_metrics", "precision_recall"],
                name="compute_final_map",
            ),
        ]
    )
