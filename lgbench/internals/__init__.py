"""Internals of a model that reads contexts: attention weights, sublayers, residual stream.

Transformers is imported when a function of :mod:`lgbench.internals.attention` or :mod:`lgbench.internals.decoder` is called.
"""
