"""`holdfast methods` and `holdfast datasets`: what there is, as a table for eyes or as JSON."""

from holdfast.cli.options import AsJson, print_json, print_rich


def list_methods(as_json: AsJson = False) -> None:
    """List the methods, what each needs, and its settings with their defaults."""
    from holdfast.registry import describe_all

    about = describe_all()
    if as_json:
        print_json(about)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("method", "for", "what it does", "needs", "settings", show_lines=True)
    for m in about:
        needs = [word for word in ("gradients", "data") if m[f"needs_{word}"]]
        settings = [f"{name}={value}" for name, value in m["settings"].items()]
        lines = [m["name"], m["class"]], [m["for"]], [m["title"], m["paper"]], needs or ["-"], settings
        table.add_row(*(Text("\n".join(cell)) for cell in lines))
    print_rich(table)


def list_datasets(as_json: AsJson = False) -> None:
    """List the datasets with size, licence and source, and whether each is at hand."""
    import holdfast as hf

    about = hf.datasets.describe()
    if as_json:
        print_json(about)
        return
    from rich.table import Table
    from rich.text import Text

    names = ["name", "rows", "columns", "classes", "licence", "source", "at_hand"]
    table = Table(*(name.replace("_", " ") for name in names))
    for entry in about:
        cells = (entry[name] for name in names)
        table.add_row(*(Text(f"{c:,}" if isinstance(c, int) else c) for c in cells))
    print_rich(table)
