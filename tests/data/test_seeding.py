"""Randomness that follows from a key, an epoch and an item."""

import random

import jax
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw.data import DataLoader, Dataset, IterableDataset
from jaxsaw.data.seeding import generators_put_back, permutation, seed_generators, words_of


class Noise(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return np.random.rand(), random.random(), np.random.randn()


class NoiseStream(IterableDataset):
    def __iter__(self):
        offset = np.random.rand()
        for _ in range(6):
            yield offset, np.random.rand(), random.random()


def values(loader):
    return np.concatenate([np.stack(batch, -1) for batch in loader])


def global_draws():
    return np.random.randn(), random.random(), np.random.rand()


@pytest.mark.parametrize("kwargs", [{}, {"shuffle": True}, {"prefetch_factor": 2}])
def test_items_are_seeded_by_epoch_and_index(kwargs):
    def loader(seed):
        return DataLoader(Noise(), 2, rngs=js.Rngs(data=seed), **kwargs)

    one, two = loader(0), loader(0)
    first = values(one)
    np.testing.assert_array_equal(first, values(two))
    assert len(np.unique(first)) == first.size
    assert not np.isin(values(one), first).any()  # another epoch
    assert not np.isin(values(loader(1)), first).any()  # another seed


def test_an_item_draws_the_same_wherever_it_stands():
    plain = DataLoader(Noise(), 2, rngs=js.Rngs(data=0))
    sampled = DataLoader(Noise(), 4, sampler=[5, 3, 1, 0, 2], rngs=js.Rngs(data=0))
    np.testing.assert_array_equal(values(plain)[[5, 3, 1, 0, 2]], values(sampled))


@pytest.mark.parametrize("dataset", [Noise(), NoiseStream()])
def test_without_streams_epochs_differ_and_repeat(dataset):
    one, two = DataLoader(dataset, 3), DataLoader(dataset, 3)
    first, second = values(one), values(one)
    assert not np.isin(first[:, 1:], second[:, 1:]).any()
    np.testing.assert_array_equal(first, values(two))
    np.testing.assert_array_equal(second, values(two))


def broken(items):
    raise ValueError("broken")


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(Noise(), 2),
        lambda: DataLoader(NoiseStream(), 2),
        lambda: DataLoader(Noise(), 2, sampler=list(range(6))),
        lambda: DataLoader(Noise(), 2, collate_fn=broken),
    ],
)
def test_the_global_generators_are_put_back(make):
    random.seed(7), np.random.seed(7), np.random.randn()  # leaves a second normal draw waiting
    state = random.getstate(), np.random.get_state()
    expected = global_draws()
    random.setstate(state[0]), np.random.set_state(state[1])
    try:
        for _ in make():
            pass
    except ValueError:
        pass
    assert global_draws() == expected


def test_a_loop_body_has_the_generators_to_itself():
    np.random.seed(3)
    expected = [np.random.rand() for _ in range(3)]
    np.random.seed(3)
    assert [np.random.rand() for _ in DataLoader(NoiseStream(), 2)] == expected


def test_put_back_after_an_exception():
    np.random.seed(0)
    expected = np.random.rand()
    np.random.seed(0)
    with pytest.raises(KeyError), generators_put_back():
        seed_generators((1, 2), "name")
        raise KeyError
    assert np.random.rand() == expected


def test_seeds_tell_items_apart():
    def draw(words, item):
        seed_generators(words, item)
        return np.random.rand(), random.random()

    with generators_put_back():
        draws = [
            draw(words, item) for words in [(0, 1), (1, 0)] for item in [0, 1, -1, "0", (0, 1)]
        ]
        assert draw((0, 1), np.int64(1)) == draws[1]
    assert len({x for pair in draws for x in pair}) == 20


def test_an_order_is_fixed_for_good():
    # An epoch that is resumed under another release has to go on in the same order.
    words = words_of(jax.random.key(0, impl="threefry2x32"))
    assert words == (0, 0)
    assert permutation(words, 8).tolist() == [3, 7, 4, 0, 2, 6, 5, 1]
