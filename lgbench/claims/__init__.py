"""Claims of papers as files, and verdicts on claims from runs."""
