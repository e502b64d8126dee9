"""The reproductions of five papers: `python -m experiments run --minutes 60`.

To read them: a `cell` is a part that takes minutes, with a file of what it gave; `parts` keep what
a long one has done so far; `order` says which comes first, `runner` makes them; `records` are the
one shape of results, `paper` what a paper is, `pages` writes its page of what there is. A paper is
a package: `reported` is what it printed, `setup` its data, settings and methods, `paper` its cells,
`page` how they are shown, and `notes.md` the words below the tables. Papers that measure a data set
at a time are an `experiment`, of which `run` can also run a part, and `whole` makes cells.
"""

PAPERS = ("black2022", "guo2023", "krishna2024", "altmeyer2025", "hoeltgen2021")
