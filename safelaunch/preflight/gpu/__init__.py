"""Checks of the GPUs, from one snapshot of NVML."""
