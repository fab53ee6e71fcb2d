"""Training a population of models at once, and what that costs."""
