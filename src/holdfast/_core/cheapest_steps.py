"""Cheapest steps in closed form: across a plane by least squares, and the level of the water over
uneven ground, which projections onto balls ask for."""

import torch
from torch import Tensor


def least_squares_step(
    need: Tensor, gain: Tensor, weight: Tensor, room: Tensor, ridge: float = 0.0
) -> Tensor:
    """(n, d) steps tau gain / weight, cut off at `room`, with tau such that steps . gain + ridge
    tau = need.

    The smallest weighted squares that close the gap `need` (n,), or, with a ridge, the optimum of
    the squared gap plus ridge times the weighted squares. Rows with nothing to close stay.
    """
    pace = gain / weight
    free = need / (ridge + (gain * pace).sum(1)).clamp_min(1e-12)  # tau if nothing is cut off
    stop = torch.where(room.isfinite(), room, 0.0) / pace.clamp_min(1e-12)
    # cutting off only ever asks for more
    short = free.clamp_min(0)
    long = torch.maximum(free, stop.amax(1))
    for _ in range(30):
        tau = (short + long) / 2
        enough = (torch.minimum(tau[:, None] * pace, room) * gain).sum(1) + ridge * tau >= need
        short = torch.where(enough, short, tau)
        long = torch.where(enough, tau, long)
    step = torch.minimum(long[:, None] * pace, room)
    return torch.where((need > 0)[:, None], step, 0.0)


def cheapest_squares(
    need: Tensor, gain: Tensor, weight: Tensor, room: Tensor, begun: Tensor
) -> Tensor:
    """(n, d) the steps u that minimise sum_j w_j (begun_j + u_j)^2 with u.gain >= need (n,) and 0
    <= u <= room.

    u = min( max(tau gain / weight - begun, 0), room ). What that gains is a polygon in tau, with a
    corner where a column starts to move and one where it stops, so tau is found by sorting the
    corners. Rows with nothing to close stay.
    """
    step = torch.zeros_like(gain)
    # the others stay, and would take as long
    movable = (gain * room > 0).any(0).nonzero().squeeze(1)
    if not len(movable):
        return step
    wanted = need.double()[:, None]
    g = gain[:, movable].double()
    r = room[:, movable].double()
    b = begun[:, movable].double()
    pace = g / weight.expand_as(gain)[:, movable]
    # A column that gains next to nothing would let tau grow without bounds.
    pace = torch.where((pace > 1e-9 * pace.amax(1, keepdim=True)) & (r > 0), pace, 0.0)
    corner, order = (
        torch.cat([b / pace, (b + r) / pace], 1).nan_to_num(torch.inf, torch.inf).sort(1)
    )
    # from each corner on
    slope = torch.cat([g * pace, -g * pace], 1).gather(1, order).cumsum(1).clamp_min(0)
    gained = (slope[:, :-1] * corner.diff(dim=1)).nan_to_num(0.0, torch.inf).cumsum(1)
    gained = torch.cat([torch.zeros_like(wanted), gained], 1)
    k = ((gained < wanted).sum(1, keepdim=True) - 1).clamp_min(0)
    tau = corner.gather(1, k) + (wanted - gained.gather(1, k)) / slope.gather(1, k).clamp_min(1e-12)
    u = torch.minimum((tau.clamp_max(1e30) * pace - b).clamp_min(0), r)
    return step.index_copy_(1, movable, torch.where(wanted > 0, u, 0.0).to(gain.dtype))


def water_level(height: Tensor, share: Tensor, total: Tensor | float) -> Tensor:
    """(.., 1) the level t >= 0 with sum_j share_j (height_j - t)_+ = total; 0 where there is less
    than that."""
    height, order = height.sort(-1, descending=True)
    share = share.gather(-1, order)
    # if only the highest so many are above it
    level = ((share * height).cumsum(-1) - total) / share.cumsum(-1)
    above = (height > level).sum(-1, keepdim=True).clamp_min(1)
    return level.gather(-1, above - 1).clamp_min(0)
