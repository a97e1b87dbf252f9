"""The way back from weight norm and spectral norm."""

from __future__ import annotations

from jaxsaw.nn.module import Module
from jaxsaw.nn.utils.parametrize import remove_parametrizations


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make an ordinary Parameter of a weight with weight norm.

    Args:
        module: Whose it is.
        name: The attribute.

    Raises:
        ValueError: If it has none.

    Source: ``torch.nn.utils.remove_weight_norm``.

    Example:
        >>> layer = nn.utils.weight_norm(nn.Linear(3, 2, rngs=js.Rngs(params=0)))
        >>> list(remove_weight_norm(layer).state_dict())
        ['bias', 'weight']
    """
    return remove_parametrizations(module, name)


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make an ordinary Parameter of a weight with spectral norm.

    Args:
        module: Whose it is.
        name: The attribute.

    Raises:
        ValueError: If it has none.

    Source: ``torch.nn.utils.remove_spectral_norm``.

    Example:
        >>> rngs = js.Rngs(params=0)
        >>> layer = nn.utils.spectral_norm(nn.Linear(3, 2, rngs=rngs), rngs=rngs)
        >>> list(remove_spectral_norm(layer).state_dict())
        ['bias', 'weight']
    """
    return remove_parametrizations(module, name)
