"""The reproductions of five papers: `python -m experiments black2022 --quick`.

To read them: `experiment` says what an experiment is, `run` runs one, `cells` keeps what is done so
far. A paper is a package: `reported` is what it printed, `setup` its data, settings and methods,
`experiment` what is measured, `page` how that is shown, and `notes.md` the words below the tables.
A sixth paper is one more package, and its name here.
"""

PAPERS = ("black2022", "guo2023", "krishna2024", "altmeyer2025", "hoeltgen2021")
