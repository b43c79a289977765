"""Selectors: the rules by which a table picks the items it hands out."""
