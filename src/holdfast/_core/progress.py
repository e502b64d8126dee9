"""A bar on stderr for long work, with lines above it; nothing when it is off or stderr is not a
terminal."""

import sys
from typing import Any, Literal

# "lines": lines are written even without a terminal, such as to a log
Shown = bool | Literal["lines"]


class Progress:
    """`with Progress(True, "Descent") as bar: bar.total(3); bar.step(0.5)`"""

    def __init__(self, shown: Shown, title: str) -> None:
        self.title = title
        self.shown = bool(shown) and sys.stderr.isatty()
        self.lines = shown == "lines" and not self.shown
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self.shown:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                Progress,
                TaskProgressColumn,
                TextColumn,
                TimeRemainingColumn,
            )

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=1)
        return self

    def total(self, count: float) -> None:
        if self._bar:
            self._bar.update(self._task, total=count)

    def step(self, amount: float) -> None:
        if self._bar:
            self._bar.update(self._task, advance=amount)

    def say(self, text: str) -> None:
        """A line above the bar, which stays there: how it goes so far."""
        if self._bar:
            self._bar.console.print(text, markup=False, highlight=False)
        elif self.lines:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()
