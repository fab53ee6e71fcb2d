"""Checks of the rules of the contracts. A check uses a thing that a plugin provides, and says in a sentence what is wrong."""
