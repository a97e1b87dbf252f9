"""Helpers around modules and their state."""

from jaxsaw.nn.utils import parametrizations, parametrize, prune, rnn, stateless
from jaxsaw.nn.utils.clip_grad import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from jaxsaw.nn.utils.convert import parameters_to_vector, to_torch, vector_to_parameters
from jaxsaw.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from jaxsaw.nn.utils.parametrizations import spectral_norm, weight_norm
from jaxsaw.nn.utils.removal import remove_spectral_norm, remove_weight_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prune",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "spectral_norm",
    "stateless",
    "to_torch",
    "vector_to_parameters",
    "weight_norm",
]
