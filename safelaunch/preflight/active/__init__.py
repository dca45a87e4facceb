"""Checks that put the node to work: each in children of its own, with a deadline."""
