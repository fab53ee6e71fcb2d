"""Planning: from a user's request to experiments with every setting resolved."""
