"""Pretrained language models: what probes read inside any causal one that `transformers` loads.

Only :mod:`lgbench.pretrained.loading` imports transformers, when it is called.
"""
