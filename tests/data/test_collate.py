"""What items become in a batch."""

from collections import OrderedDict, namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.data import DataLoader, default_collate

Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("items", "dtype"),
    [
        ([1, 2], np.int64),
        ([1.0, 2.0], np.float32),
        ([True, False], np.bool_),
        ([1j, 2j], np.complex128),
        ([np.float64(1), np.float64(2)], np.float64),
        ([np.uint8(1), np.uint8(2)], np.uint8),
        ([np.zeros(3, np.float16)] * 2, np.float16),
        ([np.zeros(3, jnp.bfloat16)] * 2, jnp.bfloat16),
    ],
)
def test_numbers_and_arrays_are_stacked(items, dtype):
    batch = default_collate(items)
    assert type(batch) is np.ndarray
    assert batch.dtype == dtype
    np.testing.assert_array_equal(batch, np.stack(items).astype(dtype))


def test_structures_are_collated_field_by_field():
    items = [{"p": Point(i, [i, "s"]), "q": (np.full(2, i),)} for i in range(3)]
    batch = default_collate(items)
    assert isinstance(batch["p"], Point)
    np.testing.assert_array_equal(batch["p"].x, [0, 1, 2])
    np.testing.assert_array_equal(batch["p"].y[0], [0, 1, 2])
    assert batch["p"].y[1] == ["s", "s", "s"]
    assert isinstance(batch["q"], tuple)
    assert batch["q"][0].shape == (3, 2)


def test_strings_and_bytes_stay():
    assert default_collate(["a", "b"]) == ["a", "b"]
    assert default_collate([b"a", b"b"]) == [b"a", b"b"]


def test_jax_arrays_and_keys_are_stacked_on_the_device():
    batch = default_collate([jnp.ones(2), jnp.zeros(2)])
    assert isinstance(batch, jax.Array)
    assert batch.shape == (2, 2)
    keys = list(jax.random.split(jax.random.key(0), 3))
    assert default_collate(keys).shape == (3,)


@pytest.mark.parametrize(
    ("items", "error", "text"),
    [
        ([object()], TypeError, "expected item to be an array, .* got object. Pass collate_fn"),
        ([None], TypeError, "got NoneType"),
        ([{"a": object()}], TypeError, r"item\['a'\]"),
        ([np.zeros(2), np.zeros(3)], ValueError, r"one shape .* got \(2,\), \(3,\)"),
        ([jnp.zeros(2), jnp.zeros(3)], ValueError, r"one shape .* got \(2,\), \(3,\)"),
        ([(1, 2), (1,)], ValueError, "item to have 2 entries .* got 1"),
        ([(1, np.zeros(1)), (1, np.zeros(2))], ValueError, r"item\[1\] to have one shape"),
        ([{"a": 1}, {"b": 1}], ValueError, r"keys \['a'\] .* got \['b'\]"),
        ([], ValueError, "at least one"),
    ],
)
def test_what_cannot_be_stacked_is_named(items, error, text):
    with pytest.raises(error, match=text):
        default_collate(items)


def batch_of(items, **kwargs):
    return next(iter(DataLoader(items, len(items), **kwargs)))


def test_a_loader_puts_arrays_on_the_device():
    batch = batch_of([(1, 1.0, "a", True)] * 2)
    assert isinstance(batch, tuple)
    assert [x.dtype for x in (batch[0], batch[1], batch[3])] == [jnp.int32, jnp.float32, jnp.bool_]
    assert all(isinstance(x, jax.Array) and not x.weak_type for x in (batch[0], batch[1]))
    assert batch[2] == ["a", "a"]


def test_small_dtypes_reach_the_device():
    assert batch_of([np.zeros(2, jnp.bfloat16)]).dtype == jnp.bfloat16


def test_what_a_collate_fn_returns_is_put_on_the_device():
    class Odd:
        pass

    odd = Odd()
    batch = batch_of(
        [1, 2],
        collate_fn=lambda items: OrderedDict(
            a=np.asarray(items),
            b=Point(np.float32(1), odd),
            c=[len(items), None],
            d=np.array(["s"]),
        ),
    )
    assert isinstance(batch, OrderedDict)
    assert isinstance(batch["a"], jax.Array)
    assert isinstance(batch["b"].x, jax.Array)
    assert batch["b"].y is odd
    assert batch["c"] == [2, None]
    assert type(batch["d"]) is np.ndarray


def test_an_array_that_others_hold_is_copied():
    memory = np.zeros((4, 1 << 12), np.float32)
    rows = list(DataLoader(list(memory), batch_size=None))
    reused = next(iter(DataLoader([0], collate_fn=lambda items: memory)))
    memory[:] = 1
    assert not any(row.any() for row in rows)
    assert not reused.any()
