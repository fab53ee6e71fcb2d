"""Trained models from kept weights: loading, predictions, probes."""
