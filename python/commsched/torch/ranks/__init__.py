"""Keeps the ranks together: `agreement` makes all ranks decide alike, and `comparison` checks that they did.

Generated code imports `first_run` from here.
"""

from .comparison import first_run

__all__ = ["first_run"]
