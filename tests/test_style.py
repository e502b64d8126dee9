"""The look of the code: air. Each check is itself checked on a line that must fail."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TREES = ("src", "experiments", "benchmarks", "docs", "tests")
LIBRARY = ("src",)
MOST_PACKED = 0.01  # of all assignments
MOST_COLUMNS = 100
MOST_LINES_OF_A_MODULE = 450
MOST_LINES_OF_A_FUNCTION = 40  # of 99 in 100 functions
COMMENTED_ABOVE = 25  # lines of a function from which on somebody asks why


def sources(trees: tuple[str, ...]) -> Iterator[Path]:
    for tree in trees:
        yield from sorted((ROOT / tree).rglob("*.py"))


def is_packed(node: ast.AST) -> bool:
    """Does one statement bind several names that are not the parts of one value?

    A swap moves values between places that are there already; unpacking takes one value apart.
    """
    if not isinstance(node, ast.Assign):
        return False
    if len(node.targets) > 1:
        return True
    places = node.targets[0]
    if not isinstance(places, ast.Tuple | ast.List):
        return False
    if isinstance(node.value, ast.GeneratorExp | ast.ListComp):
        return True
    if isinstance(node.value, ast.IfExp):
        return isinstance(node.value.body, ast.Tuple) or isinstance(node.value.orelse, ast.Tuple)
    if not isinstance(node.value, ast.Tuple):
        return False
    moved = sorted(ast.unparse(place) for place in places.elts)
    return moved != sorted(ast.unparse(value) for value in node.value.elts)


def body_length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its head and docstring."""
    body = function.body
    if ast.get_docstring(function) is not None and len(body) > 1:
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def without_a_comment(path: Path) -> list[str]:
    """Long functions in which no comment says why."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = list[str]()
    for function in functions(ast.parse("\n".join(lines))):
        inside = lines[function.lineno - 1 : function.end_lineno]
        if body_length(function) > COMMENTED_ABOVE and not any("# " in line for line in inside):
            found.append(f"{path.relative_to(ROOT)}:{function.lineno} {function.name}")
    return found


@pytest.mark.parametrize(
    "line",
    [
        "a, b = 1, 2",
        "a = b = 0",
        "low, high = (f(x) for x in ends)",
        "self.a, self.b = a, b",
        "(a, b), c = pair, 3",
        "a, b = (1, 2) if c else (3, 4)",
    ],
)
def test_a_packed_line_is_noticed(line: str) -> None:
    assert is_packed(ast.parse(line).body[0])


@pytest.mark.parametrize(
    "line",
    [
        "a, b = b, a",
        "a, b = pair",
        "x[0], x[1] = x[1], x[0]",
        "(a, b), c = found",
        "n, _ = x.shape",
    ],
)
def test_a_swap_and_one_value_taken_apart_are_not_packed(line: str) -> None:
    assert not is_packed(ast.parse(line).body[0])


def test_one_binding_a_statement() -> None:
    packed = list[str]()
    bindings = 0
    for path in sources(TREES):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            bindings += isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
            if is_packed(node):
                packed.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}")
    assert len(packed) <= MOST_PACKED * bindings, packed


def test_nothing_keeps_the_formatter_out() -> None:
    marks = ("# fmt: " + "skip", "# fmt: " + "off")
    texts = {path: path.read_text(encoding="utf-8") for path in sources(TREES)}
    assert [str(path) for path, text in texts.items() if any(mark in text for mark in marks)] == []


def test_lines_fit_their_columns() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources(TREES)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MOST_COLUMNS
    ]
    assert long == []


def test_modules_are_short() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sources(LIBRARY)
    }
    assert {k: n for k, n in lengths.items() if n > MOST_LINES_OF_A_MODULE} == {}


def test_functions_are_short() -> None:
    lengths = {
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}": body_length(function)
        for path in sources(LIBRARY)
        for function in functions(ast.parse(path.read_text(encoding="utf-8")))
    }
    long = {name: n for name, n in lengths.items() if n > MOST_LINES_OF_A_FUNCTION}
    assert len(long) <= len(lengths) / 100, long


def test_long_functions_say_why() -> None:
    assert [name for path in sources(LIBRARY) for name in without_a_comment(path)] == []
