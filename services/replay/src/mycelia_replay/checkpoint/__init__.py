"""Checkpoints of tables: written aside while the tables go on, and read back."""
