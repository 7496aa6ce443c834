"""Training: tiles, classes and weights -> checkpoints, metrics and the run record."""

from kedro.pipeline import Node, Pipeline

from obbflow.pipelines.training.nodes import train_detector


def create_pipeline(**kwargs: object) -> Pipeline:  # noqa: ARG001  (Kedro's signature)
    """Return the training pipeline."""
    return Pipeline(
        [
            Node(
                train_detector,
                inputs=[
                    "tile_index",
                    "tile_annotations",
                    "class_map",
                    "class_weights",
                    "run_id",
                    "params:paths",
                    "params:experiment",
                    "params:dataset",
                    "params:tiling",
                    "params:preprocessing",
                    "params:data_loader",
                    "params:model",
                    "params:loss",
                    "params:training",
                    "params:evaluation",
                    "params:checkpoint",
                    "params:tensorboard",
                ],
                outputs=["training_metrics", "best_checkpoint", "last_checkpoint", "run_record"],
                name="train_detector",
            ),
        ]
    )
