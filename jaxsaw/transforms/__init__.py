"""Transforms: JAX's function transforms, lifted over objects that change."""
