import pytest

from obbflow.pipeline_registry import register_pipelines

PARTS = ("data", "training", "evaluation", "reporting")
# Names that scripts and the documentation rely on.
NODES = {
    "data": [
        "read_annotations",
        "check_annotations",
        "tile_images",
        "build_class_map",
        "compute_class_weights",
    ],
    "training": ["train_detector"],
    "evaluation": ["compute_final_map"],
    "reporting": ["render_report"],
}


@pytest.fixture(scope="module")
def pipelines():
    return register_pipelines()


def names(pipeline):
    return {node.name for node in pipeline.nodes}


@pytest.mark.parametrize("part", PARTS)
def test_the_promised_nodes_are_there(pipelines, part):
    assert set(NODES[part]) <= names(pipelines[part])


def test_train_is_all_of_its_parts_and_the_default(pipelines):
    union = set().union(*(names(pipelines[part]) for part in PARTS))

    assert names(pipelines["train"]) == union
    assert names(pipelines["__default__"]) == union


def test_every_node_is_named_by_us(pipelines):
    for node in pipelines["train"].nodes:
        assert node._name == node.name, f"{node} has a generated name"
        assert "." not in node.name  # a dot would mean a namespace


def test_train_starts_from_parameters_and_the_run_id_alone(pipelines):
    inputs = pipelines["train"].inputs()

    assert {name for name in inputs if not name.startswith("params:")} == {"run_id"}


def test_nodes_take_whole_sections(pipelines):
    inputs = set().union(*(node.inputs for node in pipelines["train"].nodes))

    assert not [name for name in inputs if name.startswith("params:") and "." in name]
    assert "parameters" not in inputs
