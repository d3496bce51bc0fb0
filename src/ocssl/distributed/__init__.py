"""One learner over several processes: the same program in each, on the same global batch.

Every process holds the same weights and the same generator, so all draw the same samples and views. Divided are the
encoders' passes over the rows of a batch, the reading of the stream, and the memory's images and features. The parts
are gathered before any decision, so a run gives the same result with any number of processes.
"""

from ocssl.distributed.group import ProcessGroup, current, process_group

__all__ = ["ProcessGroup", "current", "process_group"]
