"""The plain training loop, for one model or a stack: mini-batches, cross-entropy, Adam.

With epsilon > 0 training is adversarial (Madry et al. 2018): each batch is replaced by rows of the
balls around it on which the loss is high, min_w mean_i max_{|e| <= epsilon} loss(x_i + e). For a
linear score, two classes and the linf ball, that maximum is exact:

    max loss = log(1 + exp(-y (w.x + b) + epsilon |w|_1)),    y in {-1, +1}

A `Variation` says how retrained models differ: initial weights, order of the rows, rows left out,
weights and labels of rows, number of epochs. Weights and order have their own generators, so a
variation can change one and not the other; rows left out drop out of an order that stays the
same.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from holdfast._core.adam import Adam
from holdfast._core.checks import require_integer, require_number
from holdfast._core.progress import Progress
from holdfast._core.rows import CACHE_CELLS, limited_threads, rows_per_chunk
from holdfast.distances import BallNorm, distance_of
from holdfast.errors import SettingError
from holdfast.nn.module_stack import ModuleStack, stack_of
from holdfast.nn.stack import ModelStack, Stack, lent_generator
from holdfast.retraining.attacks import Adversary

Start = Callable[[int], dict[str, Tensor]]  # a seed -> named initial tensors


@dataclass(frozen=True)
class Variation:
    """How M models of one architecture differ. Everything not given is as in the first
    model."""

    weights: tuple[int, ...]  # M seeds of the initial weights
    order: tuple[int, ...]  # M seeds of the order of the rows
    kept: Tensor | None = None  # (M, n) which rows each model sees; the same number for each
    emphasis: Tensor | None = None  # (M, n) how much each row counts
    labels: Tensor | None = None  # (M, n)
    # (M, m) positions of the rows that each model sees in an epoch, with repetitions
    rows: Tensor | None = None
    epochs: tuple[int, ...] | None = None
    epsilon: tuple[float, ...] | None = None  # radius of the balls in which rows are attacked
    # for estimators, which have more than their rows and seeds
    settings: tuple[Mapping[str, Any], ...] | None = None
    width: float = 1.0  # of the hidden layers of all M models, as a multiple of the first model's
    last_layer: bool = False  # train only the last layer, on the first model's features

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.order):
            raise SettingError(
                f"{len(self.weights)} weight seeds for {len(self.order)} order seeds"
            )
        if self.kept is not None and bool((self.kept.sum(1) != self.kept[:1].sum()).any()):
            raise SettingError("models that are trained together must leave out equally many rows")
        if self.kept is not None and not bool(self.kept.any(1).all()):
            raise SettingError("no row is left to train on")
        if self.kept is not None and self.rows is not None:
            raise SettingError("a variation has the rows that are kept, or rows, not both")

    def __len__(self) -> int:
        return len(self.weights)

    def rows_of_an_epoch(self, n: int) -> int:
        """How many of n rows each model sees in an epoch."""
        if self.rows is not None:
            return self.rows.shape[1]
        return n if self.kept is None else int(self.kept[0].sum())

    def __getitem__(self, models: slice | list[int]) -> "Variation":
        chosen = list(range(len(self))[models]) if isinstance(models, slice) else models

        def some(values: Any) -> Any:
            return (
                values[chosen] if isinstance(values, Tensor) else tuple(values[i] for i in chosen)
            )

        each = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in ("width", "last_layer")
        }
        return replace(self, **{name: None if v is None else some(v) for name, v in each.items()})


@dataclass(frozen=True, kw_only=True)
class Loop:
    """The settings of the loop."""

    epochs: int = 50
    batch_size: int = 64
    lr: float = 1e-3
    weight_decay: float = 0.0
    adam_eps: float = 1e-8

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            require_integer(name, getattr(self, name))
        for name in ("lr", "adam_eps", "weight_decay"):
            require_number(name, getattr(self, name), positive=name != "weight_decay")

    def adam(self, theta: Tensor) -> Adam:
        """Adam on the parameters of models, (M, P) or all in one vector."""
        return Adam(theta, lr=self.lr, eps=self.adam_eps, weight_decay=self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class RobustLoop(Loop):
    """The loop of plain networks, whose rows may be attacked during training.

    Args:
        optimizer: "adam", or "sgd" (plain gradient descent).
        epsilon: radius of the ball around each encoded row; 0 for no attack.
        attack: "pgd" (steps from a random point), or "fgsm" (one step). A linear score with two
            classes in the linf ball needs neither: its worst row is known.
        attack_steps, attack_norm: steps of "pgd", and the ball: "linf" or "l2".
        attack_box: attacked rows keep to the range of the training rows.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    epsilon: float = 0.0
    attack: Literal["pgd", "fgsm"] = "pgd"
    attack_steps: int = 10
    attack_norm: BallNorm = "linf"
    attack_box: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer not in ("adam", "sgd"):
            raise SettingError(f"optimizer must be 'adam' or 'sgd', got {self.optimizer!r}")
        if self.attack not in ("pgd", "fgsm"):
            raise SettingError(f"attack must be 'pgd' or 'fgsm', got {self.attack!r}")
        require_number("epsilon", self.epsilon)
        require_integer("attack_steps", self.attack_steps)
        if not isinstance(self.attack_box, bool):
            raise SettingError(f"attack_box must be true or false, got {self.attack_box!r}")
        self.adversary()

    def optimizer_for(self, theta: Tensor) -> "Adam | Sgd":
        return (
            Sgd(theta, lr=self.lr, weight_decay=self.weight_decay)
            if self.optimizer == "sgd"
            else self.adam(theta)
        )

    def adversary(self) -> Adversary:
        if self.attack == "fgsm":
            return Adversary.fgsm(self.attack_norm)
        return Adversary(int(self.attack_steps), self.attack_norm)


def check_widths(name: str, widths: Any) -> None:
    """Raise a `SettingError` unless it has the widths of at least one layer."""
    good = isinstance(widths, tuple) and all(
        isinstance(h, int) and h >= 1 for h in cast(tuple[Any, ...], widths)
    )
    if not (good and widths != ()):
        raise SettingError(f"{name} must be a list of at least one width, got {widths!r}")


# ---- stacks


def fit_stack(
    module: nn.Module,
    start: Start,
    x: Tensor,
    labels: Tensor,
    variation: Variation,
    loop: RobustLoop,
    bar: Progress,
) -> ModelStack:
    """The M trained models of a variation, of the module's architecture, on rows x (n, d) with
    classes (n,). Model i is the same, up to rounding, whatever else is in the variation."""

    def train(models: ModelStack, x: Tensor, part: slice) -> dict[str, Tensor]:
        return _fit(models, x, labels, variation[part], loop, bar)

    return fit_in_parts(module, start, x, variation, loop, train)


def fit_in_parts(
    module: nn.Module,
    start: Start,
    x: Tensor,
    variation: Variation,
    loop: Loop,
    train: Callable[[ModelStack, Tensor, slice], dict[str, Tensor]],
) -> ModelStack:
    """Train the models of a variation, as many at a time as stay in the cache. `train` takes
    stacked models with their initial weights, the rows, and which of the M models they are, and
    returns their state when trained."""
    whole = stack_of(module, len(variation))
    x = x.to(whole.theta.dtype)
    check_batches(module, variation.rows_of_an_epoch(len(x)), loop.batch_size)
    alone = isinstance(whole, ModuleStack) and whole.trains_alone(x[:2])
    size = 1 if alone else models_at_once(module, loop.batch_size, len(variation))
    state = {name: torch.empty_like(value) for name, value in whole.state().items()}
    with torch.no_grad(), limited_threads(1):
        for first in range(0, len(variation), size):
            part = slice(first, first + size)
            seeds = variation.weights[part]
            models = stack_of(module, len(seeds))
            drawn = {seed: models.named(start(seed)) for seed in dict.fromkeys(seeds)}
            models.load(
                {name: torch.stack([drawn[s][name] for s in seeds]) for name in models.state()}
            )
            # Layers that draw random numbers in training use the global generator: lend them a
            # seeded one.
            with lent_generator(seeds[0]):
                trained = train(models, x, part)
            for name, value in trained.items():
                state[name][part] = value
        whole.load(state)
    check_finite(state.values())
    return whole


def check_finite(tensors: Iterable[Tensor]) -> None:
    """Raise a `SettingError` if training has led to non-finite weights."""
    if not all(bool(value.isfinite().all()) for value in tensors):
        raise SettingError("training diverged: some weights are non-finite; lower lr")


def models_at_once(module: nn.Module, batch_size: int, models: int) -> int:
    """How many models to train at once: small stacks stay in the cache, and have most of the
    gain."""
    parameters = sum(p.numel() for p in module.parameters())
    widths = sum(m.out_features for m in module.modules() if isinstance(m, nn.Linear))
    cells = batch_size * max(widths, 1) + 2 * parameters
    return max(1, min(models, 50, rows_per_chunk(cells, CACHE_CELLS, at_least=8)))


def check_batches(module: nn.Module, n: int, batch_size: int) -> None:
    """Raise a `SettingError` if a batch would be too small for one of the layers."""
    single = min(n, batch_size) == 1 or n % batch_size == 1
    if single and any(isinstance(m, nn.BatchNorm1d) for m in module.modules()):
        raise SettingError(
            f"batch_size {batch_size} leaves one of {n} rows to a batch of its own, on which "
            "BatchNorm1d cannot be trained; take another"
        )


def _fit(
    models: ModelStack,
    x: Tensor,
    labels: Tensor,
    variation: Variation,
    loop: RobustLoop,
    bar: Progress,
) -> dict[str, Tensor]:
    epochs = torch.tensor(variation.epochs or (loop.epochs,) * len(variation))
    finished = {name: value.clone() for name, value in models.state().items()}
    optimizer = loop.optimizer_for(models.theta)
    orders = Orders(variation, len(x))
    radius = variation.epsilon or (loop.epsilon,) * len(variation)
    attacked = AttackedBatches(models, x, variation, loop, radius) if any(radius) else None
    for epoch in range(int(epochs.max())):
        order = orders.next()  # (M, n) or (1, n)
        for rows in torch.split(order, loop.batch_size, 1):
            flat = rows.reshape(-1)
            own_labels = variation.labels
            emphasis = variation.emphasis
            y = (
                labels.index_select(0, flat).view(rows.shape)
                if own_labels is None
                else _own(own_labels, rows)
            )
            w = None if emphasis is None else _own(emphasis, rows).to(x.dtype)
            batch = x.index_select(0, flat).view(*rows.shape, -1)
            optimizer.step(models.gradient(attacked(batch, y) if attacked else batch, y, w))
        models.keep((epochs == epoch + 1).nonzero().squeeze(1), finished)
        bar.step(len(variation) / int(epochs.max()))
    return finished


def _own(values: Tensor, rows: Tensor) -> Tensor:
    """(M, b) each model's own values for rows (M, b) or (1, b)."""
    return values.gather(1, rows.expand(len(values), -1))


class Sgd:
    """Plain gradient descent, with the methods of `Adam`."""

    def __init__(self, theta: Tensor, *, lr: float, weight_decay: float) -> None:
        self.theta = theta
        self.lr = lr
        self.decay = weight_decay

    @property
    def held(self) -> list[Tensor]:
        return [self.theta]

    def step(self, g: Tensor) -> None:
        if self.decay:
            g = g + self.decay * self.theta
        self.theta.sub_(g, alpha=self.lr)


class AttackedBatches:
    """Batches replaced by rows that the models, as they are now, get wrong."""

    def __init__(
        self,
        models: ModelStack,
        x: Tensor,
        variation: Variation,
        loop: RobustLoop,
        radius: tuple[float, ...],
    ) -> None:
        self.models = models
        self.adversary = loop.adversary()
        exact = isinstance(models, Stack) and len(models.sizes) == 2 and models.sizes[1] <= 2
        if exact and distance_of(loop.attack_norm).ball_is_box:
            self.adversary = Adversary.fgsm()
        self.radius = torch.tensor(radius, dtype=x.dtype)[:, None, None]
        self.box = (x.amin(0), x.amax(0)) if loop.attack_box else None
        # Models that differ in epsilon alone start at the same points of their balls.
        self.draws = SharedDraws(variation.weights, 2)

    def __call__(self, x: Tensor, labels: Tensor) -> Tensor:
        """(M, b, d) for batches (M, b, d) or (1, b, d) and their labels."""
        noise = None
        if self.adversary.start:
            drawn = self.draws.draw(lambda g: torch.rand(x.shape[1:], generator=g, dtype=x.dtype))
            noise = drawn.mul_(2).sub_(1)[self.draws.place]
        return self.adversary.attack(
            lambda z: self.models.ascent(z, labels), x, self.radius, noise=noise, box=self.box
        )


class SharedDraws:
    """Random numbers of M models for one purpose, drawn once for all that share a seed."""

    def __init__(self, seeds: Sequence[int], purpose: int) -> None:
        different = tuple(dict.fromkeys(seeds))
        self.generators = [
            torch.Generator().manual_seed(derived(seed, purpose)) for seed in different
        ]
        # (M,) which draw is each model's
        self.place = torch.tensor([different.index(seed) for seed in seeds])

    def draw(self, one: Callable[[torch.Generator], Tensor]) -> Tensor:
        """(S, ...) what each of S generators gives."""
        return torch.stack([one(g) for g in self.generators])


class Orders:
    """The order of the rows, epoch by epoch; drawn once for all models that share a seed."""

    def __init__(self, variation: Variation, n: int) -> None:
        self.draws = SharedDraws(variation.order, 1)
        self.kept = variation.kept
        self.rows = variation.rows
        self.n = n if self.rows is None else self.rows.shape[1]

    def next(self) -> Tensor:
        drawn = self.draws.draw(lambda g: torch.randperm(self.n, generator=g))
        if self.rows is not None:
            return self.rows.gather(1, drawn[self.draws.place])
        if self.kept is None and len(drawn) == 1:
            return drawn
        order = drawn[self.draws.place]  # (M, n)
        return (
            order if self.kept is None else order[self.kept.gather(1, order)].view(len(order), -1)
        )


def derived(seed: int, purpose: int) -> int:
    """A seed for one purpose; otherwise generators seeded with neighbouring numbers would meet."""
    return (seed * 1_000_003 + purpose * 7_919) % (1 << 62)


# ---- initial weights


def glorot(module: nn.Module, seed: int) -> dict[str, Tensor]:
    """Glorot-uniform weights and zero biases, from their own generator."""
    return glorot_tensors(module, torch.Generator().manual_seed(derived(seed, 0)))


def glorot_tensors(module: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Glorot-uniform weights and zero biases from a generator that goes on."""
    out = dict[str, Tensor]()
    for name, p in module.named_parameters():
        value = torch.zeros(p.shape, dtype=p.dtype)
        out[name] = nn.init.xavier_uniform_(value, generator=generator) if p.ndim > 1 else value
    return out


def redrawn(module: nn.Module, seed: int) -> dict[str, Tensor]:
    """The tensors of a module whose layers have drawn their initial weights anew, each in its own
    way."""
    net = copy.deepcopy(module)
    with lent_generator(derived(seed, 0)):
        for layer in net.modules():
            reset: Any = getattr(
                layer, "reset_parameters", getattr(layer, "_reset_parameters", None)
            )
            if reset is not None:
                reset()
                continue
            kind = type(layer).__name__
            if list(layer.parameters(recurse=False)):
                raise SettingError(
                    f"cannot draw the weights of a {kind} anew; give it a method reset_parameters()"
                )
    return {name: value.detach() for name, value in (*net.named_parameters(), *net.named_buffers())}


def initialised(net: nn.Sequential, generator: torch.Generator) -> nn.Sequential:
    """The network with Glorot-uniform weights and zero biases."""
    net.load_state_dict(glorot_tensors(net, generator))
    return net
