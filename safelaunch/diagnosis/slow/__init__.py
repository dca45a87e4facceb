"""Rules of jobs that are slow."""
