"""The reproductions of five papers: `python -m experiments run --minutes 60`.

To read them: a `cell` is a part that takes minutes, with a file of its results; `parts` keep what a
long one has done so far; `order` says which comes first, and `runner` makes them; `records` are the
one shape of results, `paper` is what a paper is, and `pages` writes its page from what there is. A
paper is a package: `reported` is what it printed, `setup` its data, settings and methods, `paper`
its cells, `page` how they are shown, and `notes.md` the words below the tables. Papers that measure
one data set at a time are an `experiment`; `run` can also run a part of one, and `whole` makes
cells of it.
"""

PAPERS = ("black2022", "guo2023", "krishna2024", "altmeyer2025", "hoeltgen2021")
