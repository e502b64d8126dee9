"""`holdfast methods` and `holdfast datasets`: what there is, as a table for people or as JSON."""

from holdfast.cli.options import AS_JSON
from holdfast.cli.output import print_json, print_table


def methods(as_json: bool = AS_JSON) -> None:
    """List the methods, what each needs, and its settings with their defaults."""
    from holdfast.registry import describe_all

    about = describe_all()
    if as_json:
        print_json(about)
        return
    rows = list[list[str]]()
    for m in about:
        needs = [word for word in ("gradients", "data") if m[f"needs_{word}"]]
        settings = [f"{name}={value}" for name, value in m["settings"].items()]
        lines = (
            [m["name"], m["class"]],
            [m["for"]],
            [m["title"], m["paper"]],
            needs or ["-"],
            settings,
        )
        rows.append(["\n".join(cell) for cell in lines])
    print_table(["method", "for", "what it does", "needs", "settings"], rows, lines=True)


def datasets(as_json: bool = AS_JSON) -> None:
    """List the datasets with size, licence and source, and whether each is available here."""
    import holdfast as hf

    about = hf.datasets.describe()
    if as_json:
        print_json(about)
        return
    names = ["name", "rows", "columns", "classes", "licence", "source", "at_hand"]
    rows = [
        [f"{e[name]:,}" if isinstance(e[name], int) else e[name] for name in names] for e in about
    ]
    print_table([name.replace("_", " ") for name in names], rows)
