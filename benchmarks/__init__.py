"""Benchmarks. Each module is a command whose last line of stdout is one JSON object."""
