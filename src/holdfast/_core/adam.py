"""Adam, one fused step for many tensors."""

from typing import Any

import torch

FUSED_ADAM: Any = getattr(torch, "_fused_adam_", None)  # what torch.optim.Adam(fused=True) calls
