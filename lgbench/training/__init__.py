"""Training of a population of models at once, with memory and time of a step."""
