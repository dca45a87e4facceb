"""The torch elastic side of a run, a process of its own. The only place that imports torch at module level."""
