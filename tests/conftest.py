"""Settings for the whole suite: one CPU device, strict dtype promotion, repeatable examples."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before JAX, and for subprocesses too

import hypothesis
import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")

# The same examples on every run, and no clock: the first one may have to compile.
hypothesis.settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
# More of them, and new ones each time, for a search by hand.
hypothesis.settings.register_profile("search", max_examples=2000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
