"""What happens when a job is run: `pipeline.py` has the steps on one screen."""
