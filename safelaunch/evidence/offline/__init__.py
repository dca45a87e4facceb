"""Evidence that others left behind: bundles of safelaunch, and dumps of torch's Flight Recorder. Nothing is executed,
and nothing is trusted."""
