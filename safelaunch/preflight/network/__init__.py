"""Checks of names, ports and network devices."""
