"""Reporting: tables of a run -> figures and the report page."""

from kedro.pipeline import Node, Pipeline

from obbflow.pipelines.reporting.nodes import draw_figures, render_report


def create_pipeline(**kwargs: object) -> Pipeline:  # noqa: ARG001  (Kedro's signature)
    """Return the reporting pipeline."""
    return Pipeline(
        [
            Node(
                draw_figures,
                inputs=[
                    "training_metrics",
                    "class_metrics",
                    "precision_recall",
                    "class_weights",
                    "final_metrics",
                    "tile_index",
                    "tile_annotations",
                    "class_map",
                ],
                outputs=[
                    "training_curves",
                    "lr_curve",
                    "class_ap",
                    "precision_recall_curves",
                    "class_balance",
                    "object_sizes",
                ],
                name="draw_figures",
            ),
            Node(
                render_report,
                inputs=[
                    "run_record",
                    "training_metrics",
                    "final_metrics",
                    "class_metrics",
                    "class_weights",
                    "precision_recall",
                    "detections",
                    "tile_index",
                    "tile_annotations",
                    "class_map",
                    "data_issues",
                    "params:experiment",
                    "params:dataset",
                    "params:preprocessing",
                    "params:evaluation",
                ],
                outputs="report",
                name="render_report",
            ),
        ]
    )
