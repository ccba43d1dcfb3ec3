# SPDX-License-Identifier: Apache-2.0
"""Executors of the fold on other machines: the cluster, its Spark options, and a check of its executors."""
