"""Which samples an epoch visits, in which order and batches; and the seed of each of them.

Everything random depends on the experiment's seed, the epoch and the sample alone: not on the
number of loading processes, nor on what ran before. A resumed run therefore sees what an
uninterrupted one would have seen.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils.data import Sampler

SampleKey = tuple[int, int]  # index of the sample, epoch


def seeded_generator(seed: int, *key: int) -> Generator:
    """Return a generator whose stream is fixed by ``seed`` and ``key``.

    Args:
        seed: The experiment's seed, not negative.
        key: What the stream is for, e.g. epoch and index; not negative. Keys of different length
            give different streams.

    Returns:
        A new generator on the CPU.
    """
    state = np.random.SeedSequence(seed, spawn_key=key).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 32 | int(state[1]))


def draw_weighted(weights: Tensor, generator: Generator) -> Tensor:
    """Return as many samples as there are, each in proportion to its weight.

    Systematic: a sample whose share is 1.6 comes once or twice, never more and never less. With
    equal weights each comes once.

    Args:
        weights: (N,) float64, above 0.
        generator: Decides which samples are drawn, and their order.

    Returns:
        (N,) int64, indices in random order.
    """
    count = len(weights)
    order = torch.randperm(count, generator=generator)
    edges = weights[order].cumsum(0)
    offset = torch.rand(1, dtype=torch.float64, generator=generator)
    points = (torch.arange(count) + offset) * (edges[-1:] / count)
    drawn = order[torch.searchsorted(edges, points, right=True).clamp(max=count - 1)]
    return drawn[torch.randperm(count, generator=generator)]


class EpochSampler(Sampler[SampleKey]):
    """Visits every sample once an epoch, as ``(index, epoch)``; or by weight, as many in all.

    Args:
        length: Number of samples; 0 gives an empty epoch.
        shuffle: Draw an order from (seed, epoch); else ascending.
        seed: The experiment's seed.
        weights: (length,) how often samples come compared with each other, see `draw_weighted`;
            which ones come depends on (seed, epoch). None: each once.

    Raises:
        ValueError: If ``length`` is negative, or ``weights`` are not ``length`` positive numbers.
    """

    def __init__(
        self, length: int, *, shuffle: bool, seed: int, weights: Tensor | None = None
    ) -> None:
        if length < 0:
            raise ValueError(f"length must not be negative, got {length}")
        if weights is not None and (weights.shape != (length,) or not bool((weights > 0).all())):
            raise ValueError(
                f"weights must be {length} numbers above 0, got {tuple(weights.shape)}"
            )
        self.weights = weights
        self.length = length
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration visits."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[SampleKey]:
        epoch = self.epoch
        generator = seeded_generator(self.seed, epoch)
        if self.weights is not None and self.length:
            order = draw_weighted(self.weights, generator)
        else:
            order = torch.randperm(self.length, generator=generator)
        if not self.shuffle:
            order = order.sort().values
        return ((index, epoch) for index in order.tolist())


class EvenBatchSampler(Sampler[list[SampleKey]]):
    """Cuts an epoch into as few batches as ``batch_size`` allows, as even as they can be.

    9 samples in batches of 8 are 5 + 4, not 8 + 1: a nearly empty last batch would weigh as much
    in an optimizer step as a full one, and gives trainable batch norm poor statistics. No sample
    is left out or repeated; fewer samples than ``batch_size`` are one batch.

    Args:
        sampler: The samples of an epoch, in order.
        batch_size: Largest number of samples in a batch, at least 1.

    Raises:
        ValueError: If ``batch_size`` is below 1.
    """

    def __init__(self, sampler: EpochSampler, batch_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.sampler = sampler
        self.batch_size = batch_size

    def __len__(self) -> int:
        return math.ceil(len(self.sampler) / self.batch_size)

    def __iter__(self) -> Iterator[list[SampleKey]]:
        keys = list(self.sampler)
        batches = len(self)
        for batch in range(batches):
            start, end = (len(keys) * edge // batches for edge in (batch, batch + 1))
            yield keys[start:end]
