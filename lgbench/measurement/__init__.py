"""Measurements of trained models: scores at every length, causality, internals, and the context-free baseline."""
