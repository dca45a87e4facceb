"""Checks of what the machine has in store for the ranks, and of what others left on it."""
