"""Runs that others made: read safely, checked against the rules, filed among the published ones, run again."""
