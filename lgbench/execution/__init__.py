"""From a plan to run files: populations one after the other, shared between processes, watched by a user."""
