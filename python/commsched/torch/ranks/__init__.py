"""Keeps the ranks together: `agreement` decides alike on all of them, and `comparison` checks that they did.

Generated code imports `first_run` from here.
"""

from .comparison import first_run

__all__ = ["first_run"]
