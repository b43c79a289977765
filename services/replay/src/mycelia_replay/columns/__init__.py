"""Columns: how the ring keeps the values of its rows."""
