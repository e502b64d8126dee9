"""What Altmeyer et al. 2025 say in words: each statement, whether it holds here, and the figures
that decide."""

from experiments.altmeyer2025.grid import GENERATORS, ITERATIONS
from experiments.altmeyer2025.reported import LATER
from experiments.experiment import Figures

# What a run must reach, in percent less implausibility; elsewhere its sign, if the paper is sure
# of it.
EXPECTED = {"linearly_separable": (20, 35), "circles": (45, 65), "moons": (10, 30)}
ACCURACY_LOST = 0.01  # at most, in the plane
SIZE = 3.0  # energies this many times larger than with the paper's ridge have diverged


def checked(result: Figures) -> list[Figures]:
    """Statements about one dataset."""
    out = [_implausibility(result), _cost(result)]
    if "grid" in result:
        out += [
            _accuracy(result),
            _generators(result),
            _ridge(result),
            _iterations(result),
            _burn_in(result),
        ]
    if "theory" in result:
        out.append(_theory(result["theory"]))
    return [line for line in out if line is not None]


def _line(statement: str, holds: bool, statistic: str) -> Figures:
    return {"statement": statement, "holds": bool(holds), "statistic": statistic}


def _implausibility(result: Figures) -> Figures | None:
    found = result["measured"]["implausibility"]
    reported, _, sure = LATER[result["dataset"]][0]
    words = (
        f"{found['of means']:.1f} % of means, {found['reduction']:.1f} % by rounds; reported "
        f"{reported:.1f} %"
    )
    limits = EXPECTED.get(result["dataset"])
    if limits:
        low, high = limits
        inside = low <= found["of means"] <= high and found["significant"]
        return _line(f"Implausibility falls by {low} to {high} %, surely", inside, words)
    if not sure:
        return None
    return _line(
        "Implausibility falls, surely", found["of means"] > 0 and found["significant"], words
    )


def _cost(result: Figures) -> Figures | None:
    found = result["measured"]["cost, protected"]
    reported, _, sure = LATER[result["dataset"]][2]
    if not sure:
        return None
    words = (
        f"{found['of means']:.1f} % of means, {found['reduction']:.1f} % by rounds; reported "
        f"{reported:.1f} %"
    )
    way = "falls" if reported > 0 else "rises"
    holds = (found["of means"] > 0) == (reported > 0) and found["significant"]
    return _line(f"Cost with a protected feature {way}, surely", holds, words)


def _accuracy(result: Figures) -> Figures:
    plain = result["accuracy"]["plain"]
    full = result["accuracy"]["full"]
    return _line(
        f"Accuracy within {ACCURACY_LOST}",
        plain - full <= ACCURACY_LOST,
        f"{full:.4f}, plain {plain:.4f}",
    )


def _best(grid: Figures, kind: str) -> float:
    """The largest reduction of a generator, over iterations and weights of the energy, as a grid
    search finds it."""
    return max(line["reduction"] for line in grid["generators"] if line["generator"] == kind)


def _generators(result: Figures) -> Figures:
    best = [_best(result["grid"], kind) for kind in GENERATORS]
    words = ", ".join(f"{kind} {value:.1f} %" for kind, value in zip(GENERATORS, best, strict=True))
    return _line(
        "ECCCo beats Generic beats REVISE as a generator", best[0] > best[1] > best[2], words
    )


def _ridge(result: Figures) -> Figures:
    tuned = {(line["setting"], line["value"]): line for line in result["grid"]["settings"]}
    none = tuned["l_reg", 0.0]["size"]
    own = tuned["l_reg", result["l_reg"]]["size"]
    words = f"energies of {none:.3g} at the end of training, {own:.3g} with the paper's ridge"
    return _line("Without a ridge energies diverge", none is not None and none > SIZE * own, words)


def _iterations(result: Figures) -> Figures:
    by = [
        max(line["reduction"] for line in _eccco(result) if line["steps"] == steps)
        for steps in ITERATIONS
    ]
    words = ", ".join(
        f"{steps} steps {value:.1f} %" for steps, value in zip(ITERATIONS, by, strict=True)
    )
    return _line("More iterations help", by[-1] > by[0], words)


def _eccco(result: Figures) -> list[Figures]:
    return [line for line in result["grid"]["generators"] if line["generator"] == "ECCCo"]


def _burn_in(result: Figures) -> Figures:
    value = result["grid"]["burn-in"]["reduction"]
    return _line(
        "Half of the epochs are enough (burn-in 0.5 still helps)", value > 0, f"{value:.1f} %"
    )


def _theory(ratio: dict[str, list[float]]) -> Figures:
    plain = ratio["plain"]
    protected = ratio["protected"]
    less = sum(p < q for p, q in zip(protected, plain, strict=True))
    mean = [sum(v) / len(v) for v in (plain, protected)]
    words = (
        f"|theta_1| / |theta_2| {mean[0]:.3f} plain, {mean[1]:.3f} protected; less for {less} of "
        f"{len(plain)} seeds"
    )
    return _line("Linear networks lean less on a protected feature", less == len(plain), words)
