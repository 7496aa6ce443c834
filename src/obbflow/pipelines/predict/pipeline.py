"""Prediction: new images and a checkpoint -> detections of whole images and their exports."""

from kedro.pipeline import Node, Pipeline

from obbflow.pipelines.predict.nodes import (
    export_predictions,
    find_images,
    merge_detections,
    predict_windows,
)


def create_pipeline(**kwargs: object) -> Pipeline:  # noqa: ARG001  (Kedro's signature)
    """Return the predict pipeline."""
    return Pipeline(
        [
            Node(
                find_images,
                inputs="params:production",
                outputs="prediction_images",
                name="find_images",
            ),
            Node(
                predict_windows,
                inputs=[
                    "prediction_images",
                    "best_checkpoint",
                    "params:production",
                    "params:data_loader",
                    "params:training",
                ],
                outputs=["window_detections", "prediction_settings"],
                name="predict_windows",
            ),
            Node(
                merge_detections,
                inputs=["window_detections", "prediction_images", "prediction_settings"],
                outputs="predictions",
                name="merge_detections",
            ),
            Node(
                export_predictions,
                inputs=["predictions", "prediction_images", "prediction_settings"],
                outputs=["dota_task1", "predictions_geojson"],
                name="export_predictions",
            ),
        ]
    )
