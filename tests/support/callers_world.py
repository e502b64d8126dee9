"""What a call must leave alone in the process that makes it."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def left_as_found() -> Iterator[None]:
    """Afterwards the global random numbers, the threads and the grad mode are what they were."""
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    threads = torch.get_num_threads()
    grad = torch.is_grad_enabled()
    yield
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    assert random.getstate() == states[2]
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, grad)
