"""Plugins: finding, loading, describing and checking them, and starting new ones."""
