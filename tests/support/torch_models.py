"""A mixed table, and a module that the engine does not know."""

import torch
from torch import nn

from support.tables import mixed_schema, mixed_table

TABLE = mixed_table(60)
SCHEMA = mixed_schema(TABLE)
X = SCHEMA.encode(TABLE)


class Opaque(nn.Module):
    """The same module, where nothing can look inside."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class Odd(nn.Module):
    """A module the engine does not know."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.a = nn.Linear(SCHEMA.width, 7)
        self.b = nn.Linear(7, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.sin(self.a(x)))
