"""The suite trains many tiny networks on few cores.

One thread per worker and plain convolutions are fastest for them: oneDNN takes longer to prepare such a call than the
call takes.
"""

from __future__ import annotations

import torch

torch.set_num_threads(1)
torch.backends.mkldnn.set_flags(False)
