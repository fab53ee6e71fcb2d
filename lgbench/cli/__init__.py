"""The commands of `lgbench`, by what they are about."""
