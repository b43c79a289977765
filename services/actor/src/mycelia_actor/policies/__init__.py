"""Policies: from observations of many environments to their actions."""
