"""Boards as tables, figures, an offline page, and curves in a terminal. Nothing is computed here."""
