"""Losses: warnings, dtypes, and targets that can't be looked at."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_broadcasting_warns(name):
    with pytest.warns(UserWarning, match=rf"{name}: input \(3, 1\) and target \(3,\) differ"):
        assert getattr(F, name)(jnp.ones((3, 1)), jnp.zeros(3), reduction="none").shape == (3, 3)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_bfloat16_adds_up_in_float32(name):
    x = jnp.ones(4096, jnp.bfloat16)
    loss = getattr(F, name)(x, 0 * x)
    assert loss.dtype == jnp.bfloat16
    assert loss.item() == getattr(F, name)(jnp.ones(1), jnp.zeros(1)).item()


def test_dtypes_are_promoted():
    assert F.mse_loss(jnp.ones(2, jnp.bfloat16), jnp.ones(2)).dtype == jnp.float32
    assert F.mse_loss(jnp.ones(2), jnp.ones(2, int)).dtype == jnp.float32
    assert F.mse_loss(jnp.ones(2, jnp.bfloat16), jnp.ones(2, int)).dtype == jnp.bfloat16


def test_cross_entropy_is_its_definition():
    r = np.random.RandomState(0)
    x, t = r.randn(5, 4), r.randint(0, 4, 5)
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    expected = -np.log(p[np.arange(5), t]).mean()
    np.testing.assert_allclose(F.cross_entropy(x, t), expected, rtol=1e-5)
    np.testing.assert_allclose(F.cross_entropy(x, np.eye(4)[t]), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_target_out_of_range_in_a_trace_is_nan(name, wrong):
    x = jnp.zeros((2, 3))
    loss = jax.jit(lambda t: getattr(F, name)(x, t, reduction="none"))(jnp.array([wrong, 1]))
    assert jnp.isnan(loss).tolist() == [True, False]


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.int16, jnp.int32])
def test_any_integers_are_targets(name, dtype):
    x = jnp.log(jnp.array([[0.25, 0.75]]))
    np.testing.assert_allclose(getattr(F, name)(x, jnp.array([1], dtype)), -np.log(0.75), rtol=1e-5)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_ignored_targets_alone_give_nan_for_the_mean_and_zero_gradients_for_the_sum(name):
    x, t = jnp.zeros((2, 3)), jnp.full(2, -100)
    assert jnp.isnan(getattr(F, name)(x, t))
    g = jax.grad(lambda x: getattr(F, name)(x, t, reduction="sum"))(x)
    assert not g.any()


def test_cross_entropy_of_large_logits_is_exact():
    x = jnp.array([[1e4, 1e4 + 1, -1e4]])
    np.testing.assert_allclose(F.cross_entropy(x, jnp.array([0])), 1.3132617, rtol=1e-6)


def test_cross_entropy_in_bfloat16_is_the_rounded_float32():
    x = jnp.asarray(np.random.RandomState(0).randn(8, 5000), jnp.bfloat16)
    t = jnp.arange(8)
    expected = F.cross_entropy(x.astype(jnp.float32), t)
    np.testing.assert_array_equal(F.cross_entropy(x, t), expected.astype(jnp.bfloat16))


def test_inputs_out_of_range_pass_in_a_trace():
    loss = jax.jit(F.binary_cross_entropy)(jnp.array([1.5]), jnp.array([0.0]))
    assert loss.shape == ()


def test_logits_may_be_large():
    x = jnp.array([-1e4, 1e4])
    loss, vjp = jax.vjp(lambda x: F.binary_cross_entropy_with_logits(x, jnp.array([1.0, 0.0])), x)
    assert loss.item() == 1e4
    assert vjp(jnp.ones(()))[0].tolist() == [-0.5, 0.5]


@pytest.mark.parametrize("name", ["binary_cross_entropy", "mse_loss", "kl_div"])
def test_second_derivatives(name):
    x, t = jnp.array([0.3, 0.6]), jnp.array([0.2, 0.7])
    assert jnp.isfinite(jax.hessian(lambda x: getattr(F, name)(x, t))(x)).all()


def test_hessian_of_binary_cross_entropy():
    x, t = 0.3, 0.2
    h = jax.hessian(lambda v: F.binary_cross_entropy(v, jnp.array([t])))(jnp.array([x]))
    np.testing.assert_allclose(h, [[t / x**2 + (1 - t) / (1 - x) ** 2]], rtol=1e-5)


def test_soft_margins_may_be_large():
    x, t = jnp.array([-1e4, 1e4]), jnp.array([1.0, -1.0])
    loss, vjp = jax.vjp(lambda x: F.soft_margin_loss(x, t, reduction="sum"), x)
    assert loss.item() == 2e4
    assert vjp(jnp.ones(()))[0].tolist() == [-1.0, 1.0]


def test_poisson_has_a_gradient_at_a_count_of_zero():
    g = jax.grad(lambda t: F.poisson_nll_loss(jnp.zeros(2), t, full=True))(jnp.array([0.0, 3.0]))
    assert jnp.isfinite(g).all()


def test_variance_below_eps_has_the_gradient_of_eps():
    grad = jax.grad(lambda v, eps: F.gaussian_nll_loss(jnp.ones(1), jnp.zeros(1), v, eps=eps))
    np.testing.assert_allclose(grad(jnp.array([0.1]), 0.5), grad(jnp.array([0.5]), 1e-6))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("poisson_nll_loss", (1,)),
        ("gaussian_nll_loss", (1, 1)),
        ("hinge_embedding_loss", (1,)),
        ("soft_margin_loss", (1,)),
        ("margin_ranking_loss", (1, 1)),
        ("multilabel_soft_margin_loss", (1,)),
    ],
)
def test_many_equal_terms_in_bfloat16_have_their_mean(name, args):
    few, many = (
        getattr(F, name)(*(jnp.full((n, 1), v, jnp.bfloat16) for v in (0.5, *args)))
        for n in (1, 4096)
    )
    assert few.dtype == many.dtype == jnp.bfloat16
    assert few.item() == many.item()


def test_triplets_in_bfloat16_are_the_rounded_float32():
    r = np.random.RandomState(0)
    triplet = [jnp.asarray(r.randn(8, 100), jnp.bfloat16) for _ in range(3)]
    wide = F.triplet_margin_loss(*(x.astype(jnp.float32) for x in triplet))
    assert F.triplet_margin_loss(*triplet) == wide.astype(jnp.bfloat16)


# Connectionist temporal classification.


def brute_force(log_probs, labels, blank=0):
    """Add up the probabilities of all alignments."""
    times, classes = log_probs.shape
    total = 0.0
    for path in itertools.product(range(classes), repeat=times):
        kept = [c for i, c in enumerate(path) if c != blank and (i == 0 or c != path[i - 1])]
        if kept == list(labels):
            total += np.exp(sum(log_probs[i, c] for i, c in enumerate(path)))
    return -np.log(total) if total else np.inf


def test_ctc_is_its_definition():
    x = np.random.RandomState(0).randn(4, 5, 3)
    x = x - np.log(np.exp(x).sum(-1, keepdims=True))
    labels = [[1, 2], [1, 1], [2], [], [1, 2, 1]]
    padded = np.array([row + [0] * (3 - len(row)) for row in labels])
    spans, counts = np.array([4, 3, 4, 2, 2]), np.array([len(row) for row in labels])
    expected = [brute_force(x[: spans[i], i], row) for i, row in enumerate(labels)]
    none = {"reduction": "none"}
    traced = jax.jit(lambda *args: F.ctc_loss(*args, **none))
    np.testing.assert_allclose(traced(x, padded, spans, counts), expected, rtol=1e-5)
    flat = np.array([label for row in labels for label in row])
    np.testing.assert_allclose(traced(x, flat, spans, counts), expected, rtol=1e-5)
    assert expected[-1] == np.inf
    grad = jax.jit(jax.grad(lambda x: F.ctc_loss(x, padded, spans, counts, reduction="sum")))(x)
    assert jnp.isfinite(grad).all()


def test_ctc_through_log_softmax_has_the_true_gradient():
    x, labels = jnp.asarray(np.random.RandomState(0).randn(4, 3)), jnp.array([1, 2])
    loss = jax.jit(lambda x: F.ctc_loss(F.log_softmax(x, -1), labels, 4, 2, reduction="sum"))
    grad, step = jax.grad(loss)(x), 1e-2
    for i in (0, 5, 11):
        nudge = jnp.zeros(12).at[i].set(step).reshape(4, 3)
        slope = (loss(x + nudge) - loss(x - nudge)) / (2 * step)
        np.testing.assert_allclose(grad.ravel()[i], slope, rtol=2e-2, atol=1e-3)


def test_ctc_of_a_long_input_in_bfloat16():
    x = jnp.full((400, 1, 2), -np.log(2), jnp.bfloat16)
    args = (jnp.ones((1, 3), int), jnp.array([400]), jnp.array([3]))
    wide = F.ctc_loss(x.astype(jnp.float32), *args)
    assert jnp.isfinite(wide)
    assert F.ctc_loss(x, *args) == wide.astype(jnp.bfloat16)
