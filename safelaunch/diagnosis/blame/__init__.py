"""Who deviates from its peers: evidence that rules of several kinds ask for."""
