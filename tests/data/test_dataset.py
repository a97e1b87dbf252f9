"""Datasets give the items that NumPy's indexing gives."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)

X = np.arange(12.0, dtype=np.float32).reshape(6, 2)
Y = np.arange(6)


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray, js.Variable])
def test_tensor_dataset_indexes_every_array(convert):
    dataset = TensorDataset(convert(X), convert(Y))
    assert len(dataset) == 6
    x, y = dataset[4]
    np.testing.assert_array_equal(x, X[4])
    assert y == 4
    np.testing.assert_array_equal(dataset[-1][0], X[-1])


@pytest.mark.parametrize("tensors", [(), (X, Y[:5]), (np.float32(1),)])
def test_tensor_dataset_refuses_what_has_no_common_length(tensors):
    with pytest.raises(ValueError, match="expected arrays of one length"):
        TensorDataset(*tensors)


def test_tensor_dataset_is_pickled_as_numpy():
    twin = pickle.loads(pickle.dumps(TensorDataset(jnp.asarray(X))))
    assert type(twin.tensors[0]) is np.ndarray
    np.testing.assert_array_equal(twin.tensors[0], X)


def test_iterating_a_dataset_ends():
    assert len(list(TensorDataset(X))) == 6
    assert list(ConcatDataset([["a"], ["b", "c"]])) == ["a", "b", "c"]


def test_subset_of_a_subset():
    inner = Subset("abcdef", [5, 3, 1])
    assert [inner[i] for i in range(3)] == ["f", "d", "b"]
    assert [Subset(inner, [2, 0])[i] for i in range(2)] == ["b", "f"]
    assert len(inner) == 3


def test_concat_dataset_crosses_the_seams():
    dataset = ConcatDataset(["ab", "", "cde"])
    assert [dataset[i] for i in range(-5, 5)] == list("abcdeabcde")
    assert dataset.cumulative_sizes == [2, 2, 5]


@pytest.mark.parametrize("index", [5, -6])
def test_concat_dataset_has_an_end(index):
    with pytest.raises(IndexError, match=f"index {index} is out of range, length 5"):
        ConcatDataset(["ab", "cde"])[index]


def test_concat_dataset_refuses_what_has_no_index():
    with pytest.raises(ValueError, match="at least one"):
        ConcatDataset([])
    with pytest.raises(TypeError, match="dataset 1 is a IterableDataset"):
        ConcatDataset(["ab", IterableDataset()])


def test_adding_datasets_concatenates_them():
    both = TensorDataset(X) + TensorDataset(-X)
    assert isinstance(both, ConcatDataset)
    np.testing.assert_array_equal(both[7][0], -X[1])


@pytest.mark.parametrize(
    ("total", "lengths", "sizes"),
    [
        (10, [7, 3], [7, 3]),
        (10, [7, 3, 0], [7, 3, 0]),
        (10, [0.75, 0.25], [8, 2]),
        (10, [1 / 3, 1 / 3, 1 / 3], [4, 3, 3]),
        (1, [0.5, 0.5], [1, 0]),
    ],
)
def test_random_split_parts(total, lengths, sizes):
    parts = random_split(range(total), lengths, rngs=js.Rngs(data=3))
    assert [len(part) for part in parts] == sizes
    assert sorted(part[i] for part in parts for i in range(len(part))) == list(range(total))


def test_random_split_follows_its_stream():
    def split(seed):
        return [part.indices for part in random_split(range(50), [25, 25], rngs=js.Rngs(seed))]

    assert split(0) == split(0)
    assert split(0) != split(1)
    rngs = js.Rngs(0)
    random_split(range(4), [4], rngs=rngs)
    assert rngs.counts == {"data": 1}


@pytest.mark.parametrize("lengths", [[7, 4], [0.5, 0.4], [11, -1]])
def test_random_split_refuses_wrong_lengths(lengths):
    with pytest.raises(ValueError, match="random_split"):
        random_split(range(10), lengths, rngs=js.Rngs(0))


def test_what_a_subclass_must_define():
    class Empty(Dataset):
        pass

    with pytest.raises(NotImplementedError, match="Empty defines no __getitem__"):
        Empty()[0]
    with pytest.raises(NotImplementedError, match="defines no __iter__"):
        iter(IterableDataset())


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray])
def test_batches_taken_in_one_step_equal_collated_items(convert):
    dataset = Subset(TensorDataset(convert(X), convert(Y)), [5, -2, 0])
    fast = DataLoader(dataset, 2)
    slow = DataLoader([dataset[i] for i in range(3)], 2)
    for a, b in zip(fast, slow, strict=True):
        for left, right in zip(a, b, strict=True):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)


def test_a_subclass_is_asked_item_by_item():
    class Doubled(TensorDataset):
        def __getitem__(self, index):
            return (2 * super().__getitem__(index)[0],)

    for dataset in (Doubled(X), Subset(Doubled(X), range(6))):
        np.testing.assert_array_equal(next(iter(DataLoader(dataset, 6)))[0], 2 * X)


@pytest.mark.parametrize("index", [6, -7])
def test_a_batch_out_of_range_is_an_error(index):
    for convert in (np.asarray, jnp.asarray):
        with pytest.raises(IndexError, match=f"index {index} is out of range, length 6"):
            next(iter(DataLoader(TensorDataset(convert(X)), sampler=[index])))
