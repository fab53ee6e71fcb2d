"""From a user's request to experiments whose every setting is known."""
