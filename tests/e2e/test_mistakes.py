"""What a user can do wrong: one message, a status that is not 0, earlier outputs untouched."""

import pytest
import torch
from PIL import Image

LABEL = "10 10 60 10 60 30 10 30 ship 0\n"


def write_data_set(root, label):
    for split in ("train", "val"):
        for folder in ("images", "labelTxt"):
            (root / split / folder).mkdir(parents=True)
        Image.new("RGB", (128, 96)).save(root / split / "images" / "P0001.png")
        (root / split / "labelTxt" / "P0001.txt").write_text(label, encoding="utf-8")
    return root


def missing_root(folder):
    return ["--params", f"dataset.data_root={folder / 'nowhere'}"], ["nowhere", "data_root"]


def empty_folder(folder):
    (folder / "empty").mkdir()
    return ["--params", f"dataset.data_root={folder / 'empty'}"], ["empty", "data_root"]


def no_usable_object(folder):
    root = write_data_set(folder / "photos", "imagesource:x\ngsd:0.5\n1 2 3 ship 0\n")
    return ["--params", f"dataset.data_root={root}"], ["photos", "0 objects"]


def class_that_is_not_allowed(folder):
    root = write_data_set(folder / "photos", LABEL)
    config = folder / "run.yml"
    config.write_text(
        f"run: {{params: {{dataset: {{data_root: {root}, allowed_classes: [shop]}}}}}}",
        encoding="utf-8",
    )
    return ["--config", config], ["P0001.txt", "ship", "allowed_classes"]


def unknown_parameter(_folder):
    return ["--params", "training.num_epoch=3"], [
        "training.num_epoch: unknown key, did you mean 'num_epochs'?"
    ]


def unknown_section(_folder):
    return ["--params", "trian.num_epochs=3"], ["trian: unknown section, did you mean 'training'?"]


def value_out_of_range(_folder):
    return ["--params", "training.num_epochs=0"], ["training.num_epochs", "got 0"]


def unknown_pipeline(_folder):
    return ["--pipeline", "trian"], ["there is no pipeline 'trian', did you mean 'train'?"]


def unknown_environment(_folder):
    return ["--env", "smok"], ["smok", "folders in conf/"]


def broken_configuration_file(folder):
    (folder / "run.yml").write_text("run: {pipelin: train}", encoding="utf-8")
    return ["--config", folder / "run.yml"], ["pipelin"]


# In the next three the data pipeline would come first, with other settings than before.
def missing_checkpoint(folder):
    path = folder / "nowhere.pt"
    return ["--params", f"tiling.min_visible=0.5,checkpoint.load_from_checkpoint={path}"], [
        str(path)
    ]


def missing_experiment(_folder):
    return ["--params", "tiling.min_visible=0.5,checkpoint.load_from_experiment=rum"], [
        "there is no run 'rum'"
    ]


def missing_backbone_weights(folder):
    path = folder / "nowhere.pth"
    given = f"model.pretrained_backbone=true,model.backbone_weights={path}"
    return ["--params", f"tiling.min_visible=0.5,{given}"], [str(path)]


def objects_without_area(folder):
    root = write_data_set(folder / "photos", "10 10 60 10 60 10 10 10 ship 0\n")
    return ["--params", f"dataset.data_root={root}"], ["photos", "0 objects"]


def objects_larger_than_a_tile(folder):
    root = write_data_set(folder / "photos", "2 2 126 2 126 94 2 94 ship 0\n")
    given = "tiling.tile_size=32,dataset.overlap=0"
    return ["--params", f"dataset.data_root={root},{given}"], ["photos", "tiling.tile_size"]


def damaged_checkpoint(folder):
    path = folder / "notes.pt"
    path.write_text("these are no weights", encoding="utf-8")
    return ["--pipelines", "training", "--params", f"checkpoint.load_from_checkpoint={path}"], [
        str(path)
    ]


def checkpoint_of_something_else(folder):
    path = folder / "other.pt"
    torch.save({"state_dict": {"text_encoder.weight": torch.zeros(3)}}, path)
    return ["--pipelines", "training", "--params", f"checkpoint.load_from_checkpoint={path}"], [
        str(path)
    ]


def checkpoint_of_another_model(_folder):
    return ["--pipelines", "evaluation", "--params", "model.fpn_channels=24"], [
        "best_checkpoint.pt",
        "fpn",
    ]


def output_of_no_run(_folder):
    return ["--pipelines", "evaluation", "--load-versions", "best_checkpoint:2020-01-01"], [
        "best_checkpoint",
        "2020-01-01",
    ]


@pytest.mark.parametrize(
    "mistake",
    [
        missing_root,
        empty_folder,
        no_usable_object,
        class_that_is_not_allowed,
        unknown_parameter,
        unknown_section,
        value_out_of_range,
        unknown_pipeline,
        unknown_environment,
        broken_configuration_file,
        missing_checkpoint,
        missing_experiment,
        missing_backbone_weights,
        objects_without_area,
        objects_larger_than_a_tile,
        damaged_checkpoint,
        checkpoint_of_something_else,
        checkpoint_of_another_model,
        output_of_no_run,
    ],
    ids=lambda mistake: mistake.__name__,
)
def test_a_mistake_ends_with_one_message(project, smoke_run, tmp_path, mistake):
    options, expected = mistake(tmp_path)
    before = smoke_run.checksums()

    env = [] if "--env" in options else ["--env", "smoke"]
    finished = project.kedro("run", *env, *options, OBBFLOW_DATA_DIR=smoke_run.data_dir)

    assert finished.status in (1, 2), finished.output
    assert "Traceback" not in finished.output
    assert finished.output.count("Error:") == 1, finished.output
    message = finished.output.partition("Error:")[2]
    for part in expected:
        assert part in message
    after = smoke_run.checksums()
    assert [path for path in before if after.get(path) != before[path]] == []


def test_verbose_shows_where_a_mistake_was_found(project, tmp_path):
    options, _ = missing_root(tmp_path)

    for arguments, variables in (
        ([*options, "--verbose"], {}),
        (options, {"OBBFLOW_DEBUG": "1"}),
    ):
        finished = project.kedro(
            "run", "--env", "smoke", *arguments, OBBFLOW_DATA_DIR=tmp_path / "data", **variables
        )

        assert finished.status == 1
        assert "Traceback" in finished.output
        assert "DataError" in finished.output


def test_our_own_command_tells_mistakes_the_same_way(project, tmp_path):
    options, expected = unknown_parameter(tmp_path)

    finished = project.obbflow("run", "--env", "smoke", *options, OBBFLOW_DATA_DIR=tmp_path)

    assert finished.status == 1
    assert expected[0] in finished.output
    assert "Traceback" not in finished.output


def test_a_data_folder_that_cannot_be_written_is_named(project, tmp_path):
    (tmp_path / "data").write_text("a file where a folder should be", encoding="utf-8")

    finished = project.kedro("run", "--env", "smoke", OBBFLOW_DATA_DIR=tmp_path / "data")

    assert finished.status == 1
    assert str(tmp_path / "data") in finished.output
    assert "Traceback" not in finished.output
    assert (tmp_path / "data").read_text(encoding="utf-8") == "a file where a folder should be"
