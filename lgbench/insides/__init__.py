"""What happens inside a model while it reads contexts: one that lgbench builds from parts, or one of `transformers`.

Only functions of :mod:`lgbench.insides.attending` and :mod:`lgbench.insides.decoder` import transformers, when they are called.
"""
