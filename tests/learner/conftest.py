"""The suite trains many tiny learners: one thread each is fastest, and the same on every machine."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
