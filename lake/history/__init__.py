# SPDX-License-Identifier: Apache-2.0
"""Routes at a point in time: states, changes, timelines and reports from the tables."""
