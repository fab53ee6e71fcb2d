"""Boards as tables, figures, a page, and curves in a terminal. Nothing is computed here."""
