"""Benchmarks: `./routelake bench`. Ratios are the claim; absolute figures are context."""
