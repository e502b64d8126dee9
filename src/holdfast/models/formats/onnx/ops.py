"""The general operators of ONNX as torch operations; those of `ai.onnx.ml` are in `onnx.ops_ml`,
and those that look at a window in `onnx.windows`.

Each takes the node (its attributes and version) and its inputs, and gives one tensor, or a tuple of
them. Whatever could make something large out of little first calls `room`. What is not in
`OPERATORS` is not run.
"""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.errors import FileError
from holdfast.models.formats.onnx.graph import DTYPES, ELEMENTS, Node, Strings
from holdfast.models.formats.onnx.op_checks import Operator, numbers, one, room, unsupported
from holdfast.models.formats.onnx.windows import average_pool, conv, max_pool, overall, pad


def together(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that tensors of these shapes are stretched to."""
    return tuple(cast(Any, torch).broadcast_shapes(*shapes))


# ---- element by element


def unary(f: Callable[[Tensor], Tensor]) -> Operator:
    return one(lambda node, x: f(x))


def binary(f: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    def run(node: Node, a: Tensor, b: Tensor) -> Tensor:
        room(node, *together(a.shape, b.shape))
        return f(a, b)

    return run


def variadic(f: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    def run(node: Node, *parts: Tensor) -> Tensor:
        room(node, *together(*(p.shape for p in parts)))
        return reduce(f, parts)

    return run


def same(node: Node, x: Any, *settings: Any) -> Any:
    return x


def mean(node: Node, *parts: Tensor) -> Tensor:
    return variadic(torch.add)(node, *parts) / len(parts)


def mod(node: Node, a: Tensor, b: Tensor) -> Tensor:
    if not a.is_floating_point() and not bool((b != 0).all()):
        raise unsupported(node, "division by zero")
    return binary(torch.fmod if node.get("fmod", 0) else torch.remainder)(node, a, b)


def clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if node.version < 11:
        return x.clamp(node.get("min", -math.inf), node.get("max", math.inf))
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


def where(node: Node, test: Tensor, a: Tensor, b: Tensor) -> Tensor:
    room(node, *together(test.shape, a.shape, b.shape))
    return torch.where(test, a, b)


def converted(node: Node, x: Tensor) -> Tensor:
    to = node.get("to", 0)
    if to not in ELEMENTS:
        raise unsupported(node, f"cannot cast to element type {to}")
    return x.to(DTYPES[ELEMENTS[to][0]])


# ---- products and norms


def matmul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    if not (a.ndim >= 1 and b.ndim >= 1):
        raise unsupported(node, "does not take single numbers")
    batch = together(a.shape[:-2], b.shape[:-2])
    room(node, *batch, a.shape[-2] if a.ndim > 1 else 1, b.shape[-1] if b.ndim > 1 else 1)
    return a @ b


def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    if a.ndim != 2 or b.ndim != 2:
        raise unsupported(node, "takes matrices")
    a = a.T if node.get("transA", 0) else a
    b = b.T if node.get("transB", 0) else b
    room(node, len(a), b.shape[1])
    alpha = node.get("alpha", 1.0)
    beta = node.get("beta", 1.0)
    if c is not None and alpha == beta == 1 and c.ndim == 1:
        return torch.addmm(c, a, b)
    out = alpha * (a @ b)
    return out if c is None else binary(torch.add)(node, out, beta * c)


def batch_norm(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> Tensor:
    if node.get("training_mode", 0):
        raise unsupported(node, "is in training mode; export the model in evaluation mode")
    return F.batch_norm(x, mean, var, scale, bias, eps=node.get("epsilon", 1e-5))


def layer_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    shape = x.shape[node.get("axis", -1) :]
    bias = None if bias is None else bias.expand(shape)
    return F.layer_norm(x, shape, scale.expand(shape), bias, node.get("epsilon", 1e-5))


def soft(f: Callable[..., Tensor]) -> Operator:
    """Softmax along an axis; before version 13 over everything from that axis on."""

    def run(node: Node, x: Tensor) -> Tensor:
        if node.version >= 13:
            return f(x, dim=node.get("axis", -1))
        return f(x.flatten(node.get("axis", 1)), dim=-1).reshape(x.shape)

    return run


def reduction(f: Callable[[Tensor, list[int], bool], Tensor]) -> Operator:
    def run(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
        over = numbers(node, axes, "axes")
        if not over and node.get("noop_with_empty_axes", 0):
            return x
        return f(x, over or list(range(x.ndim)), bool(node.get("keepdims", 1)))

    return run


def product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((a % x.ndim for a in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


def arg(f: Callable[..., Tensor]) -> Operator:
    return one(lambda node, x: f(x, dim=node.get("axis", 0), keepdim=bool(node.get("keepdims", 1))))


# ---- shapes


def reshape(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    sizes = numbers(node, shape, "shape") or []
    if not node.get("allowzero", 0):
        if not all(s or i < x.ndim for i, s in enumerate(sizes)):
            raise unsupported(node, f"cannot make {sizes} of {tuple(x.shape)}")
        sizes = [s or x.shape[i] for i, s in enumerate(sizes)]
    return x.reshape(sizes)


def flatten(node: Node, x: Tensor) -> Tensor:
    axis = node.get("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise unsupported(node, f"there is no axis {axis}")
    axis += x.ndim * (axis < 0)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def squeeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    over = numbers(node, axes, "axes")
    if not all(x.shape[a] == 1 for a in over or ()):
        raise unsupported(node, f"axes {over} of {tuple(x.shape)} are not all 1")
    return x.squeeze() if over is None else x.squeeze(tuple(over))


def unsqueeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    over = numbers(node, axes, "axes") or []
    for axis in sorted(a % (x.ndim + len(over)) for a in over):
        x = x.unsqueeze(axis)
    return x


def concat(node: Node, *parts: Tensor) -> Tensor:
    room(node, sum(p.numel() for p in parts))
    return torch.cat(parts, node.get("axis", 1))


def cut(
    node: Node,
    x: Tensor,
    starts: Tensor | None = None,
    ends: Tensor | None = None,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """Slice."""
    first = numbers(node, starts, "starts") or []
    last = numbers(node, ends, "ends") or []
    over = numbers(node, axes, "axes") or list(range(len(first)))
    by = numbers(node, steps, "steps") or [1] * len(first)
    if not (len(first) == len(last) == len(over) == len(by) and 0 not in by):
        raise unsupported(node, "starts, ends, axes and steps do not fit")
    for a, b, axis, step in zip(first, last, over, by, strict=True):
        at = range(x.shape[axis])[a:b:step]  # Python slices as ONNX does
        if not at:
            x = x.narrow(axis, 0, 0)
        elif step > 0:
            x = x[(slice(None),) * (axis % x.ndim) + (slice(at.start, at.stop, step),)]
        else:
            x = x.index_select(axis, torch.tensor(list(at), dtype=torch.int64))
    return x


def gather(node: Node, x: Tensor, index: Tensor) -> Tensor:
    axis = node.get("axis", 0)
    if not (not index.is_floating_point() and -x.ndim <= axis < x.ndim):
        raise unsupported(node, "bad index or axis")
    size = x.shape[axis]
    if not bool(((index >= -size) & (index < size)).all()):
        raise unsupported(node, f"an index is outside of 0 to {size - 1}")
    axis %= x.ndim
    room(node, *x.shape[:axis], index.numel(), *x.shape[axis + 1 :])
    picked = x.index_select(axis, (index % size if size else index).reshape(-1).long())
    return picked.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


def split(node: Node, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis = node.get("axis", 0)
    count = len(node.outputs)
    parts = numbers(node, sizes, "split")
    if parts is None:
        each = -(-x.shape[axis] // count)
        parts = [min(each, x.shape[axis] - i * each) for i in range(count)]
    if not (len(parts) == count and min(parts) >= 0):
        raise unsupported(node, f"cannot split into {parts}")
    return tuple(cast(Any, x).split(parts, axis))


def constant(node: Node) -> Tensor | Strings:
    dtypes = {
        "value_float": torch.float32,
        "value_floats": torch.float32,
        "value_int": torch.int64,
        "value_ints": torch.int64,
    }
    for name, value in node.attributes.items():
        if name == "value" or name in dtypes:
            return value if name == "value" else torch.tensor(value, dtype=dtypes[name])
    raise FileError("operator Constant holds no number")


def constant_of_shape(node: Node, shape: Tensor) -> Tensor:
    sizes = numbers(node, shape, "shape") or []
    if not min(sizes, default=0) >= 0:
        raise unsupported(node, f"impossible shape {sizes}")
    room(node, *sizes)
    value = node.attributes.get("value", torch.zeros(1))
    if not (isinstance(value, Tensor) and value.numel() == 1):
        raise unsupported(node, "the value is not a single number")
    return value.reshape(()).expand(sizes).clone()


def expand(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    sizes = together(x.shape, numbers(node, shape, "shape") or [])
    room(node, *sizes)
    return x.expand(sizes)


def tile(node: Node, x: Tensor, repeats: Tensor) -> Tensor:
    times = numbers(node, repeats, "repeats") or []
    if not (len(times) == x.ndim and min(times, default=0) >= 0):
        raise unsupported(node, f"impossible repeats {times}")
    room(node, x.numel(), *times)
    return x.repeat(times)


UNARY = "Relu Sigmoid Tanh Exp Log Sqrt Neg Abs Sign Reciprocal Erf Sin Cos Floor Ceil Round IsNaN"
OPERATORS: dict[str, Operator] = {
    "Identity": same,
    "Dropout": same,
    "Not": unary(torch.logical_not),
    "Clip": clip,
    "Cast": converted,
    # called in torch as they are in ONNX
    **{op: unary(getattr(torch, op.lower())) for op in UNARY.split()},
    **{op: unary(getattr(F, op.lower())) for op in ("Softplus", "Softsign", "Mish", "HardSwish")},
    "Gelu": one(lambda node, x: F.gelu(x, approximate=node.get("approximate", "none"))),
    "Swish": one(lambda node, x: x * torch.sigmoid(node.get("alpha", 1.0) * x)),
    "Elu": one(lambda node, x: F.elu(x, node.get("alpha", 1.0))),
    "Celu": one(lambda node, x: F.celu(x, node.get("alpha", 1.0))),
    "Selu": one(
        lambda node, x: (
            node.get("gamma", 1.05070098735548) * F.elu(x, node.get("alpha", 1.67326324235437))
        )
    ),
    "LeakyRelu": one(lambda node, x: F.leaky_relu(x, node.get("alpha", 0.01))),
    "HardSigmoid": one(
        lambda node, x: (node.get("alpha", 0.2) * x + node.get("beta", 0.5)).clamp(0, 1)
    ),
    "PRelu": binary(lambda x, slope: torch.where(x < 0, slope * x, x)),
    "Mul": binary(torch.mul),
    "Mod": mod,
    "Add": binary(torch.add),
    "Sub": binary(torch.sub),
    "Where": where,
    "Div": binary(
        lambda a, b: a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")
    ),
    "Pow": binary(lambda a, b: torch.pow(a, b).to(a.dtype)),
    "And": binary(torch.logical_and),
    "Or": binary(torch.logical_or),
    "Xor": binary(torch.logical_xor),
    "Equal": binary(torch.eq),
    "Greater": binary(torch.gt),
    "Less": binary(torch.lt),
    "GreaterOrEqual": binary(torch.ge),
    "LessOrEqual": binary(torch.le),
    "Sum": variadic(torch.add),
    "Max": variadic(torch.maximum),
    "Min": variadic(torch.minimum),
    "Mean": mean,
    "MatMul": matmul,
    "Gemm": gemm,
    "BatchNormalization": batch_norm,
    "LayerNormalization": layer_norm,
    "Softmax": soft(torch.softmax),
    "LogSoftmax": soft(torch.log_softmax),
    "ReduceSum": reduction(Tensor.sum),
    "ReduceMean": reduction(Tensor.mean),
    "ReduceMax": reduction(Tensor.amax),
    "ReduceMin": reduction(Tensor.amin),
    "ReduceLogSumExp": reduction(Tensor.logsumexp),
    "ReduceL1": reduction(lambda x, a, k: x.abs().sum(a, keepdim=k)),
    "ReduceProd": reduction(product),
    "ReduceL2": reduction(lambda x, a, k: x.square().sum(a, keepdim=k).sqrt()),
    "ReduceSumSquare": reduction(lambda x, a, k: x.square().sum(a, keepdim=k)),
    "ReduceLogSum": reduction(lambda x, a, k: x.sum(a, keepdim=k).log()),
    "ArgMax": arg(torch.argmax),
    "ArgMin": arg(torch.argmin),
    "Transpose": one(
        lambda node, x: x.permute(node.integers("perm") or tuple(reversed(range(x.ndim))))
    ),
    "Shape": one(
        lambda node, x: torch.tensor(
            x.shape[node.get("start", 0) : node.attributes.get("end")]
        ).long()
    ),
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Concat": concat,
    "Slice": cut,
    "Gather": gather,
    "Split": split,
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Expand": expand,
    "Tile": tile,
    "Pad": pad,
    "Conv": conv,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": overall(torch.mean),
    "GlobalMaxPool": overall(torch.amax),
}
