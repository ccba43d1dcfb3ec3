# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: `./routelake bench`. Ratios are the claim; absolute figures are context."""
