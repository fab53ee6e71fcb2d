"""Submissions: runs are inspected, checked against the rules for published runs, filed, and verified by a rerun."""
