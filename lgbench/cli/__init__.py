"""Commands of `lgbench`, by topic."""
