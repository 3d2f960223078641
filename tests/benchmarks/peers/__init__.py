"""The work of the benchmark, done by each toolkit in its own words; see `bench.py` beside this folder."""
