"""One learner over several processes: the same program everywhere, on the same global batch.

Every process holds the same weights and the same generator, and so draws the same samples and the same views. Only the
heavy parts are divided: the encoders' passes over the rows of a batch, the reading of the stream, and the memory's
images and features. What was divided is put together again before anything is decided, so a run means the same for any
number of processes.
"""

from ocssl.distributed.group import Group, current, membership

__all__ = ["Group", "current", "membership"]
