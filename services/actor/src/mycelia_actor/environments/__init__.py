"""Environments: any Gymnasium environment as columns of rows, whatever its autoreset mode."""
