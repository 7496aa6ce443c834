"""The pipelines by name, written out by hand.

Kedro's ``find_pipelines`` looks for a package of the asked name only and does not find a composed
pipeline such as ``train``.
"""

from kedro.pipeline import Pipeline

from obbflow.pipelines.data.pipeline import create_pipeline as create_data
from obbflow.pipelines.evaluation.pipeline import create_pipeline as create_evaluation
from obbflow.pipelines.predict.pipeline import create_pipeline as create_predict
from obbflow.pipelines.reporting.pipeline import create_pipeline as create_reporting
from obbflow.pipelines.training.pipeline import create_pipeline as create_training


def register_pipelines() -> dict[str, Pipeline]:
    """Return every pipeline that ``kedro run --pipeline NAME`` knows."""
    parts = {
        "data": create_data(),
        "training": create_training(),
        "evaluation": create_evaluation(),
        "reporting": create_reporting(),
    }
    train = sum(parts.values(), Pipeline([]))
    return {**parts, "train": train, "predict": create_predict(), "__default__": train}
