"""safelaunch: the launcher to run instead of torchrun.

Importing this package costs nothing: it loads the standard library only.
"""

__version__ = "0.1.0"
