"""The operators of ONNX that look at a window of their input: padding, convolutions and pooling."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.models.formats.onnx.graph import Node
from holdfast.models.formats.onnx.op_checks import Operator, numbers, one, room, unsupported


def pad(
    node: Node,
    x: Tensor,
    pads: Tensor | None = None,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    sizes = numbers(node, pads, "pads") or []
    if node.get("mode", "constant") != "constant" or axes is not None:
        raise unsupported(node, "only constant padding of all axes")
    if not (len(sizes) == 2 * x.ndim and min(sizes, default=0) >= 0):
        raise unsupported(node, f"impossible pads {sizes}")
    return padded(node, x, sizes, float(value) if value is not None else node.get("value", 0.0))


def padded(node: Node, x: Tensor, sizes: Sequence[int], fill: float) -> Tensor:
    """x with (all starts, then all ends) added to its last axes."""
    half = len(sizes) // 2
    first = x.shape[: x.ndim - half]
    last = x.shape[x.ndim - half :]
    room(node, *first, *(s + sizes[i] + sizes[i + half] for i, s in enumerate(last)))
    pairs = [p for i in reversed(range(half)) for p in (sizes[i], sizes[i + half])]
    return F.pad(x, pairs, value=fill) if any(pairs) else x


def window(node: Node, x: Tensor, kernel: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations, and pads (starts, then ends) of a sliding window."""
    d = x.ndim - 2
    ones: tuple[int, ...] = (1,) * d
    strides = list(node.integers("strides") or ones)
    dilations = list(node.integers("dilations") or ones)
    zeros: list[int] = [0] * 2 * d
    pads = list(node.integers("pads")) or zeros
    auto = node.get("auto_pad", "NOTSET")
    fits = 1 <= d <= 3 and len(kernel) == len(strides) == len(dilations) == d and len(pads) == 2 * d
    if not (fits and min(*strides, *dilations, *kernel) >= 1 and min(pads) >= 0):
        raise unsupported(node, "impossible window")
    room(node, *kernel)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        if max(dilations) != 1:
            raise unsupported(node, "padding 'same' with dilation")
        sizes = zip(x.shape[2:], strides, kernel, strict=True)
        total = [max((-(-n // stride) - 1) * stride + width - n, 0) for n, stride, width in sizes]
        small = [t // 2 for t in total]
        large = [t - t // 2 for t in total]
        return strides, dilations, small + large if auto == "SAME_UPPER" else large + small
    if auto not in ("NOTSET", "VALID"):
        raise unsupported(node, f"unknown padding {auto!r}")
    return strides, dilations, zeros if auto == "VALID" else pads


def conv(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    strides, dilations, pads = window(node, x, weight.shape[2:])
    groups = node.get("group", 1)
    if not groups >= 1:
        raise unsupported(node, "impossible number of groups")
    x = padded(node, x, pads, 0.0)
    room(node, len(x), len(weight), *((s - 1) // strides[i] + 1 for i, s in enumerate(x.shape[2:])))
    f: Operator = (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3]
    return f(x, weight, bias, strides, 0, dilations, groups)


def max_pool(node: Node, x: Tensor) -> Tensor:
    if len(node.outputs) != 1 or node.get("storage_order", 0):
        raise unsupported(node, "indices are not supported")
    kernel = node.integers("kernel_shape")
    ceil = bool(node.get("ceil_mode", 0))
    strides, dilations, pads = window(node, x, kernel)
    f: Operator = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[x.ndim - 3]
    return f(padded(node, x, pads, -math.inf), kernel, strides, 0, dilations, ceil)


def average_pool(node: Node, x: Tensor) -> Tensor:
    kernel = node.integers("kernel_shape")
    strides, dilations, pads = window(node, x, kernel)
    if max(dilations) != 1 or node.get("ceil_mode", 0):
        raise unsupported(node, "dilations and ceil_mode are not supported")
    f: Operator = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[x.ndim - 3]
    mean = f(padded(node, x, pads, 0.0), kernel, strides)
    without_pads = any(pads) and not node.get("count_include_pad", 0)
    return (
        mean / f(padded(node, torch.ones_like(x), pads, 0.0), kernel, strides)
        if without_pads
        else mean
    )


def overall(f: Callable[..., Tensor]) -> Operator:
    """Global pooling."""
    return one(lambda node, x: f(x, dim=tuple(range(2, x.ndim)), keepdim=True))
