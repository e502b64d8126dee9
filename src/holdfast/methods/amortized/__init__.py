"""Recourse learnt once for all rows: generators, and networks that predict and explain together."""
