"""Linear rules  a . z <= b  on encoded rows: by how much they are broken, and the nearest rows that
keep them."""

import torch
from torch import Tensor

Part = tuple[Tensor, Tensor, Tensor]  # the columns of one rule, their weights a, and its bound b

ROUNDS = 50  # over the rules, each time with the exact multiplier of one of them
FAR = 1e15  # stands for the end of an open interval


def excess(z: Tensor, rules: list[Part]) -> Tensor:
    """(n, d) rows -> (n, r) by how much each rule is over its bound; what rounding can do counts as
    nothing."""
    eps = 8 * torch.finfo(z.dtype).eps
    over = [
        (z[:, c] * a).sum(1) - b - eps * ((z[:, c] * a).abs().sum(1) + b.abs()) for c, a, b in rules
    ]
    return torch.stack(over, 1)


def into_rules(y: Tensor, lo: Tensor, hi: Tensor, rules: list[Part]) -> Tensor:
    """Nearest to each row of `y` with lo <= z <= hi that keeps the rules, grids and categories
    aside.

    It is clamp(y - sum_r m_r a_r, lo, hi) with multipliers m_r >= 0. Each is found exactly while
    the others stay, in turn until none moves (coordinate ascent on the dual); a single rule needs
    one turn.
    """
    # free: before clamping
    free = y.clone()
    m = y.new_zeros(len(rules), len(y))
    # a row that has settled stays, whatever the others do
    on = torch.ones(len(y), dtype=torch.bool)
    for _ in range(ROUNDS if len(rules) > 1 else 1):
        old = m.clone()
        for r, (c, a, b) in enumerate(rules):
            without = free[:, c] + m[r, :, None] * a
            m[r] = torch.where(on, multiplier(without, a, b, lo[:, c], hi[:, c]), m[r])
            free[:, c] = without - m[r, :, None] * a
        on &= ((m - old).abs() > 16 * torch.finfo(y.dtype).eps * old.abs()).any(0)
        if not on.any():
            break
    z = y.clone()
    for c, _, _ in rules:
        z[:, c] = torch.clamp(free[:, c], lo[:, c], hi[:, c])
    for c, a, b in rules:  # what rounding left over
        v = z[:, c]
        low = lo[:, c]
        high = hi[:, c]
        z[:, c] = torch.clamp(v - multiplier(v, a, b, low, high)[:, None] * a, low, high)
    return z


def multiplier(v: Tensor, a: Tensor, b: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    """(n,) the least m >= 0 with a . clamp(v - m a, lo, hi) <= b, or the m that gets nearest to it.

    As m grows, column j stands still, moves from one end of its interval to the other, and stands
    still again: the left side falls along straight pieces, and the pieces are walked in order.
    """
    start = torch.where(a > 0, hi, lo)
    end = torch.where(a > 0, lo, hi)
    t = torch.cat([(v - start) / a, (v - end) / a], 1).clamp(0, FAR)
    t, order = t.sort(1)
    # of the piece that begins at t
    slope = torch.cat([-a * a, a * a]).expand_as(t).gather(1, order).cumsum(1)
    over = (torch.minimum(torch.maximum(v, lo), hi) * a).sum(1, keepdim=True) - b
    over = torch.cat([over, over + (t.diff(dim=1) * slope[:, :-1]).cumsum(1)], 1)  # at t
    piece = (over > 0).sum(1, keepdim=True).clamp(1, t.shape[1] - 1) - 1
    t0 = t.gather(1, piece)
    t1 = t.gather(1, piece + 1)
    m = t0 - over.gather(1, piece) / slope.gather(1, piece).clamp_max(-torch.finfo(v.dtype).tiny)
    return torch.where(over[:, :1] > 0, torch.minimum(m, t1), 0.0).squeeze(1)
