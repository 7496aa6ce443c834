"""Batches of a data set, loaded in this process or in workers."""

import multiprocessing
from typing import Any, Literal

from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from obbflow.config import DataLoaderSection
from obbflow.data.sampler import EpochSampler, EvenBatchSampler, seeded_generator
from obbflow.structures import Target, collate

_WORKER_MODULE = "obbflow.data.tile_dataset"


def build_loader(
    dataset: Dataset[tuple[Tensor, Target]],
    sampler: EpochSampler,
    data_loader: DataLoaderSection,
    *,
    device_type: Literal["cpu", "cuda"],
) -> DataLoader[tuple[Tensor, Target]]:
    """Return a loader of ``(images, targets)`` batches, two lists (torch types it by the samples).

    Call ``sampler.set_epoch`` before each epoch. Batches are those of `EvenBatchSampler`. Workers
    live as long as the loader, and draw their global random streams (python, numpy, torch) from
    the seed of ``sampler``; the caller's global stream is not touched.

    Args:
        dataset: Takes keys ``(index, epoch)``.
        sampler: The keys of an epoch.
        data_loader: Batch size, workers, pinning.
        device_type: Where the batches go; memory is pinned only for "cuda".

    Returns:
        The loader; its length is the number of batches an epoch.
    """
    workers = data_loader.num_workers
    return DataLoader(
        dataset,
        batch_sampler=EvenBatchSampler(sampler, data_loader.batch_size),
        num_workers=workers,
        collate_fn=collate,
        pin_memory=data_loader.pin_memory and device_type == "cuda",
        multiprocessing_context=_worker_context() if workers else None,
        persistent_workers=workers > 0,
        generator=seeded_generator(sampler.seed),
    )


def _worker_context() -> Any:  # noqa: ANN401  (the type differs by platform)
    """Return how workers start: never by forking this process, whose threads may hold locks."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # The server imports torch once, and each worker starts from it in milliseconds.
    context.set_forkserver_preload([_WORKER_MODULE])
    return context
