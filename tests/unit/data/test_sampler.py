from collections import Counter

import pytest
import torch

from obbflow.data.sampler import EpochSampler, EvenBatchSampler, draw_weighted, seeded_generator


def draw(seed, *key):
    return torch.rand(4, generator=seeded_generator(seed, *key)).tolist()


def test_same_seed_and_key_give_the_same_stream():
    assert draw(3, 1, 2) == draw(3, 1, 2)


@pytest.mark.parametrize(
    "other", [(4, 1, 2), (3, 2, 2), (3, 1, 3), (3, 2, 1), (3, 1), (3, 1, 2, 0), (3,)]
)
def test_another_seed_or_key_gives_another_stream(other):
    assert draw(3, 1, 2) != draw(*other)


def test_neighbouring_samples_draw_independently():
    first = torch.tensor([draw(0, 1, index)[0] for index in range(500)])
    assert first.mean() == pytest.approx(0.5, abs=0.04)  # 3 standard errors
    lag = torch.corrcoef(torch.stack([first[:-1], first[1:]]))[0, 1]
    assert lag == pytest.approx(0, abs=0.14)


def test_every_sample_comes_once_with_its_epoch():
    sampler = EpochSampler(20, shuffle=True, seed=0)
    sampler.set_epoch(3)
    keys = list(sampler)
    assert sorted(keys) == [(index, 3) for index in range(20)]
    assert keys != sorted(keys)
    assert len(sampler) == 20


def test_order_depends_on_seed_and_epoch_alone():
    def order(seed, *epochs):
        sampler = EpochSampler(20, shuffle=True, seed=seed)
        orders = []
        for epoch in epochs:
            sampler.set_epoch(epoch)
            orders.append([index for index, _ in sampler])
        return orders[-1]

    torch.manual_seed(1)
    straight = order(0, 1, 2, 3)
    torch.manual_seed(2)
    resumed = order(0, 3)
    assert straight == resumed
    assert order(0, 4) != resumed
    assert order(1, 3) != resumed


def draws(weights, epoch, *, shuffle=True, seed=0):
    sampler = EpochSampler(len(weights), shuffle=shuffle, seed=seed, weights=torch.tensor(weights))
    sampler.set_epoch(epoch)
    assert {drawn for _, drawn in sampler} <= {epoch}
    return [index for index, _ in sampler]


def test_weighted_samples_come_in_proportion_and_an_epoch_stays_as_long():
    weights = [2.0] * 10 + [1.0] * 20  # 40 in all for 30 samples: shares of 1.5 and 0.75
    total = Counter()
    for epoch in range(400):
        drawn = Counter(draws(weights, epoch))
        assert sum(drawn.values()) == 30
        assert {drawn[index] for index in range(10)} <= {1, 2}
        assert {drawn[index] for index in range(10, 30)} <= {0, 1}
        total += drawn
    hard = sum(total[index] for index in range(10)) / (400 * 10)
    assert hard == pytest.approx(1.5, abs=0.03)  # each epoch's sum differs from 15 by at most 1


def test_weighted_draw_depends_on_seed_and_epoch_alone():
    weights = [3.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0]
    torch.manual_seed(1)
    first = draws(weights, 5)
    torch.manual_seed(2)
    assert draws(weights, 5) == first
    assert draws(weights, 6) != first
    assert draws(weights, 5, seed=1) != first


def test_weighted_samples_without_shuffling_ascend():
    drawn = draws([5.0] + [1.0] * 9, 1, shuffle=False)
    assert drawn == sorted(drawn)
    assert drawn.count(0) in {3, 4}  # 10 * 5 / 14 = 3.6


def test_equal_weights_draw_each_sample_once():
    assert sorted(
        draw_weighted(torch.full((100,), 2.0).double(), seeded_generator(0)).tolist()
    ) == [*range(100)]


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, float("nan")]])
def test_weights_that_do_not_fit_are_refused(weights):
    with pytest.raises(ValueError, match="weights must be 2 numbers above 0"):
        EpochSampler(2, shuffle=True, seed=0, weights=torch.tensor(weights))


def test_an_iteration_keeps_the_epoch_it_began_with():
    sampler = EpochSampler(3, shuffle=False, seed=0)
    iterator = iter(sampler)
    first = next(iterator)
    sampler.set_epoch(9)
    assert [first, *iterator] == [(0, 0), (1, 0), (2, 0)]


def test_negative_length_is_refused():
    with pytest.raises(ValueError, match="got -1"):
        EpochSampler(-1, shuffle=True, seed=0)


@pytest.mark.parametrize(
    ("length", "batch_size", "sizes"),
    [
        (0, 4, []),
        (1, 4, [1]),
        (3, 4, [3]),
        (8, 4, [4, 4]),
        (9, 8, [4, 5]),
        (10, 4, [3, 3, 4]),
        (5, 1, [1] * 5),
    ],
)
def test_batches_are_few_and_even(length, batch_size, sizes):
    sampler = EpochSampler(length, shuffle=False, seed=0)
    batches = EvenBatchSampler(sampler, batch_size)
    drawn = list(batches)
    assert [len(batch) for batch in drawn] == sizes
    assert len(batches) == len(sizes)
    assert [key for batch in drawn for key in batch] == list(sampler)


def test_empty_batches_are_refused():
    with pytest.raises(ValueError, match="got 0"):
        EvenBatchSampler(EpochSampler(4, shuffle=False, seed=0), 0)
