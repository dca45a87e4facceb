"""`safelaunch exec`, and `safelaunch.join()`: ranks that somebody else starts and owns are watched and told of."""
