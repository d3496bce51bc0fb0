"""The command line in a folder of the test's own."""

from helpers.cli import ocssl

__all__ = ["ocssl"]
