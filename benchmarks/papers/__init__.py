"""The papers' tables, done again: each figure of ours beside the published one, as ratios to the same base.

One file per paper declares its tables as data (`psc`, `bns`, `pipegcn`, `sancus`); `table` relates figures to a base,
`beds` says on what they are measured, `link` how narrow the links are, `measure` does a run, `run` all of
them, and `page` writes it down.
"""
