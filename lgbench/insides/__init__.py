"""The insides of a model while it reads contexts: a model that lgbench builds from parts, or one of `transformers`.

Only functions of :mod:`lgbench.insides.attending` and :mod:`lgbench.insides.decoder` import transformers, when they are called.
"""
