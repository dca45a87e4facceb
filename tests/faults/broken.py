"""Deliberately not Python: what an import meets on a node with a half-copied file."""

step = (1,
