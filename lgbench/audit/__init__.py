"""Runs that others made: read safely, held against the rules, filed among the published ones, run again."""
