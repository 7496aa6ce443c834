import numpy as np
import pytest
import torch
from PIL import Image

from obbflow.config import DataLoaderSection, DatasetSection, PreprocessingSection
from obbflow.data.loader import build_loader
from obbflow.data.sampler import EpochSampler
from obbflow.data.tile_dataset import TileDataset
from obbflow.data.transforms import TrainTransform
from obbflow.errors import DataError
from obbflow.tables import TILE_ANNOTATIONS, TILE_INDEX, make_table

TILES = 7
SIZE = 32


@pytest.fixture
def dataset(tmp_path):
    rng = np.random.default_rng(0)
    index, annotations = [], []
    for tile in range(TILES):
        path = tmp_path / f"{tile}.png"
        Image.fromarray(rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)).save(path)
        index.append((str(tile), "image", "train", 0, 0, SIZE, SIZE, str(path), tile, 1.0))
        box = (16.0, 12.0, 8.0, 4.0, 0.5)
        annotations += [(str(tile), "ship", *box, False, False, False, 1.0, 0)] * tile
    preprocessing = PreprocessingSection(
        target_size=(48, 48), enable_random_rotate=True, random_rotate_prob=0.8
    )
    class_map = {"ship": 1}
    return TileDataset(
        make_table(index, TILE_INDEX),
        make_table(annotations, TILE_ANNOTATIONS),
        class_map,
        TrainTransform(preprocessing, class_map),
        split="train",
        dataset=DatasetSection(format="synthetic"),
        seed=3,
    )


def load_epochs(dataset, *, num_workers, epochs=(0, 1)):
    sampler = EpochSampler(len(dataset), shuffle=True, seed=3)
    section = DataLoaderSection(batch_size=3, num_workers=num_workers)
    loader = build_loader(dataset, sampler, section, device_type="cpu")
    batches = []
    for epoch in epochs:
        sampler.set_epoch(epoch)
        batches.append(list(loader))
    return batches


def test_epoch_holds_every_tile_once_in_even_batches(dataset):
    (batches,) = load_epochs(dataset, num_workers=0, epochs=[0])
    assert [len(images) for images, _ in batches] == [2, 2, 3]
    indices = [target["index"].item() for _, targets in batches for target in targets]
    assert sorted(indices) == list(range(TILES))
    boxes = {
        target["index"].item(): len(target["rboxes"]) + len(target["rboxes_ignore"])
        for _, targets in batches
        for target in targets
    }
    assert boxes == {tile: tile for tile in range(TILES)}  # in the middle: none leaves the canvas


def test_workers_and_this_process_give_the_same_batches(dataset):
    alone = load_epochs(dataset, num_workers=0)
    shared = load_epochs(dataset, num_workers=2)
    for batches, others in zip(alone, shared, strict=True):
        for (images, targets), (other_images, other_targets) in zip(batches, others, strict=True):
            for image, other in zip(images, other_images, strict=True):
                assert torch.equal(image, other)
            for target, other in zip(targets, other_targets, strict=True):
                assert target.keys() == other.keys()
                assert all(torch.equal(target[name], other[name]) for name in target)


def test_broken_tile_in_a_worker_gives_the_message_alone(dataset, tmp_path):
    for tile in range(TILES):
        (tmp_path / f"{tile}.png").write_text("not an image")
    with pytest.raises(DataError) as caught:
        load_epochs(dataset, num_workers=1, epochs=[0])
    message = str(caught.value)
    assert ".png: the tile cannot be read" in message
    assert message.endswith("kedro run --pipeline data")
    assert "Traceback" not in message


def test_epochs_differ(dataset):
    first, second = load_epochs(dataset, num_workers=0)
    assert [t["index"].item() for _, ts in first for t in ts] != [
        t["index"].item() for _, ts in second for t in ts
    ]


def test_resumed_epoch_equals_the_uninterrupted_one(dataset):
    _, straight = load_epochs(dataset, num_workers=0, epochs=(0, 5))
    torch.manual_seed(99)
    (resumed,) = load_epochs(dataset, num_workers=0, epochs=[5])
    for (images, _), (others, _) in zip(straight, resumed, strict=True):
        assert all(torch.equal(image, other) for image, other in zip(images, others, strict=True))


def test_fewer_tiles_than_the_batch_size_are_one_batch(dataset):
    sampler = EpochSampler(len(dataset), shuffle=True, seed=0)
    section = DataLoaderSection(batch_size=64, num_workers=0)
    loader = build_loader(dataset, sampler, section, device_type="cpu")
    assert len(loader) == 1
    assert [len(images) for images, _ in loader] == [TILES]


def test_iterating_leaves_the_global_random_stream_alone(dataset):
    state = torch.get_rng_state()
    load_epochs(dataset, num_workers=0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("device_type", "wanted", "pinned"),
    [("cuda", True, True), ("cuda", False, False), ("cpu", True, False)],
)
def test_memory_is_pinned_for_cuda_only(dataset, device_type, wanted, pinned):
    sampler = EpochSampler(len(dataset), shuffle=True, seed=0)
    section = DataLoaderSection(num_workers=0, pin_memory=wanted)
    assert build_loader(dataset, sampler, section, device_type=device_type).pin_memory is pinned


def test_workers_never_fork_this_process(dataset):
    sampler = EpochSampler(len(dataset), shuffle=True, seed=0)
    section = DataLoaderSection(num_workers=1)
    loader = build_loader(dataset, sampler, section, device_type="cpu")
    assert loader.multiprocessing_context.get_start_method() in {"forkserver", "spawn"}
    assert loader.persistent_workers
