"""CommSched: hides the communication of distributed ML programs behind their computation.

This package imports nothing heavy. ``commsched.torch`` holds the PyTorch front end and is the only part that needs torch.
"""

__version__ = "0.1.0"
