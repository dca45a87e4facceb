"""How the files of jobs start their ranks: what a scheduler was asked for, and what the launcher makes of it."""
