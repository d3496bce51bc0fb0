"""The version of ocssl."""

__version__ = "0.2.0"
