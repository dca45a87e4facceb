"""Rules of hangs."""
