"""Pretrained language models: what probes read inside any causal one that `transformers` loads.

Only :mod:`lgbench.pretrained.loading` and :mod:`lgbench.pretrained.attending` import transformers, when they are called.
"""
