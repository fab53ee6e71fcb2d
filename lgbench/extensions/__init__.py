"""Plugins: discovery, loading, descriptions, checks, and templates for new plugins."""
