"""Internals of a model that reads contexts: attention weights, sublayers, residual stream."""
