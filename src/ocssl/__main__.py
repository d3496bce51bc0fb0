"""``python -m ocssl`` is the ``ocssl`` command."""

from ocssl.cli import main

main()
