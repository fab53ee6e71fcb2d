"""From a plan to run files: populations are scheduled, shared between processes, trained, tested and written."""
