"""`holdfast inspect`: what a model file is, whether loading it is safe, what it expects, and what
can explain it."""

from pathlib import Path
from typing import Any, cast

from holdfast.cli.options import AS_JSON, argument
from holdfast.cli.output import echo, print_json, printable

MOST = 12  # names in a line


def inspect(
    file: Path = argument("FILE", "Model file of any kind."), as_json: bool = AS_JSON
) -> None:
    """Say what a model FILE is and what it expects, without running anything in it."""
    from holdfast.models.formats.inspect import inspect as look

    found = look(file)
    found["methods"] = explaining(found)
    if as_json:
        print_json(found)
        return
    for line in lines(found):
        echo(printable(line.replace("\n", "\N{REPLACEMENT CHARACTER}")))


def lines(found: dict[str, Any]) -> list[str]:
    """What was found, in words."""
    out = [f"{found['file']}: {found['what']}, {found['bytes']:,} bytes"]
    out += [
        {
            "safe": "loading: safe, it holds data and runs no code",
            "runs code": "loading: REFUSED, it can run code",
            "refused": "loading: refused",
        }[found["loading"]]
    ]
    if found["problem"]:
        return [*out, f"problem: {found['problem']}"]
    out.append(
        f"schema: {'in the file' if found['schema'] else 'not in the file; pass one with --schema'}"
    )
    out += [f"{key}: {short(found[key])}" for key in ("inputs", "classes", "outputs") if found[key]]
    out += [f"{key}: {short(value)}" for key, value in found["details"].items()]
    out.append(f"gradients: {'yes' if found['gradients'] else 'no'}")
    out.append(f"methods: {', '.join(found['methods'])}")
    return out


def short(value: Any) -> str:
    if isinstance(value, dict):
        value = [f"{k or 'ai.onnx'} {v}" for k, v in cast(dict[str, Any], value).items()]
    if not isinstance(value, list):
        return (
            {True: "yes", False: "no"}.get(value, str(value))
            if isinstance(value, bool)
            else str(value)
        )
    words = [str(v) for v in cast(list[Any], value)]
    return ", ".join(words[:MOST]) + (f" and {len(words) - MOST} more" if len(words) > MOST else "")


def explaining(found: dict[str, Any]) -> list[str]:
    """The methods that can explain the model in the file."""
    from holdfast.registry import list_methods

    if found["loading"] != "safe":
        return []
    estimates = True if found["outputs"] == "value" else None
    names = list_methods(gradients=None if found["gradients"] else False, regression=estimates)
    has_recourse = bool(found["details"].get("recourse network"))
    return [name for name in names if has_recourse or name != "learned-recourse"]
