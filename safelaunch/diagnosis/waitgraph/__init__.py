"""Who waits for whom: the graph on which the rules of hangs stand."""
