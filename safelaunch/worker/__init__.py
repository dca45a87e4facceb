"""All that runs inside a worker process: standard library only, Python 3.8 syntax, never raising into user code."""
