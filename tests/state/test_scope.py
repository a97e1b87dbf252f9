"""The transaction: reads and writes that stay inside until they are committed."""

import threading

import jax
import jax.numpy as jnp
import pytest

import jaxsaw as js
from jaxsaw.state import scope as scopes
from jaxsaw.state.scope import Scope


def box(value=0.0):
    return js.Variable(jnp.full((), value))


def test_writes_stay_inside_until_they_are_committed():
    a, b = box(), box(1.0)
    with Scope() as scope:
        a.value = a + b + 1.0
        assert float(a) == 2
        assert list(scope.written) == [a]
    assert (float(a), float(b)) == (0, 1)
    scope.commit({box: scope.values[box] for box in scope.written})
    assert float(a) == 2


def test_a_scope_that_raises_is_dropped():
    a = box()
    with pytest.raises(ValueError):
        with Scope():
            a.value = a + 1.0
            raise ValueError
    assert float(a) == 0 and scopes.current() is None


def test_the_innermost_scope_answers_and_commits_to_the_next():
    a = box()
    with Scope() as outer:
        a.value = a + 1.0
        with Scope() as inner:
            a.value = a + 1.0
            assert float(a) == 2
        assert float(a) == 1
        inner.commit({a: inner.values[a]})
        assert float(a) == 2
    assert float(a) == 0
    outer.commit({a: outer.values[a]})
    assert float(a) == 2


def test_values_are_what_boxes_have_from_the_start():
    a = box()
    with Scope({a: jnp.full((), 5.0)}) as scope:
        assert float(a) == 5 and not scope.written
    assert float(a) == 0


def test_lift_is_asked_once_for_a_box_that_is_read():
    a, asked = box(), []
    with Scope(lift=lambda box: asked.append(box) or jnp.full((), 7.0)):
        assert float(a) == 7 and float(a) == 7
        assert a.shape == ()
    assert asked == [a]


def test_looking_at_the_shape_reads_nothing():
    a, asked = box(), []
    with Scope(lift=asked.append):
        assert a.shape == () and a.dtype == jnp.float32 and a.ndim == 0 and a.size == 1
    assert not asked


def test_boxes_that_are_made_inside_are_created():
    with Scope() as scope:
        a = box(3.0)
        assert float(a) == 3 and a in scope.created and a in scope.written
    with pytest.raises(RuntimeError, match="made inside a trace that has ended"):
        a.value  # noqa: B018
    scope.commit({a: scope.values[a]})
    assert float(a) == 3


def test_a_created_box_is_created_in_the_enclosing_scope_too():
    with Scope() as outer:
        with Scope() as inner:
            a = box(3.0)
        inner.commit({a: inner.values[a]})
        assert a in outer.created and float(a) == 3


def test_objects_know_the_scope_that_they_were_born_in():
    class Thing(js.Stateful):
        pass

    old = Thing()
    with Scope() as outer:
        middle = Thing()
        with Scope() as inner:
            new = Thing()
            assert inner.encloses(new._birth) and inner.encloses(middle._birth)
            assert not inner.encloses(old._birth)
            middle.attribute = 1
            with pytest.raises(RuntimeError, match="attribute was assigned inside a traced"):
                old.attribute = 1
        assert not outer.encloses(new._birth)
        inner.commit({})
        assert outer.encloses(new._birth)
        new.attribute = 1
    old.attribute = 1


def test_what_the_library_added_is_taken_away_when_the_scope_fails():
    rngs = js.Rngs(0)
    with pytest.raises(ValueError):
        with Scope():
            rngs.next("noise")
            assert rngs.counts == {"noise": 1}
            raise ValueError
    assert rngs.counts == {}


def test_what_an_inner_scope_added_is_taken_away_with_the_outer_one():
    rngs = js.Rngs(0)
    with pytest.raises(ValueError):
        with Scope() as outer:
            with Scope() as inner:
                rngs.next("noise")
            inner.commit({box: inner.values[box] for box in inner.written})
            assert outer.grown() == [(rngs, "noise")]
            raise ValueError
    assert rngs.counts == {}


def test_writing_in_a_raw_transform_inside_is_refused():
    a = box()

    def write(x):
        a.value = a + x
        return x

    with Scope():
        with pytest.raises(TypeError, match="written inside a raw jax transform"):
            jax.vmap(write)(jnp.ones(3))
        write(1.0)
        assert float(a) == 1


def test_committing_inside_a_raw_transform_is_refused():
    a = box()

    def commit(x):
        with Scope() as scope:
            a.value = a + x
        scope.commit({a: scope.values[a]})
        return x

    with pytest.raises(TypeError, match="written inside a raw jax transform"):
        jax.vmap(commit)(jnp.ones(3))
    assert float(a) == 0


def test_a_scope_is_one_threads():
    a, seen = box(), []
    with Scope():
        a.value = a + 1.0
        thread = threading.Thread(target=lambda: seen.append((float(a), scopes.current())))
        thread.start()
        thread.join()
    assert seen == [(0.0, None)]


def test_closing_lets_go_of_the_values():
    a = box()
    with Scope() as scope:
        a.value = a + 1.0
    scope.close()
    assert not scope.values and scope.trace is None and scope.lift is None
