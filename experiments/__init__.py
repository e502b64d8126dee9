"""The reproductions of five papers: `python -m experiments black2022 --quick`."""
