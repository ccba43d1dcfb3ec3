# SPDX-License-Identifier: Apache-2.0
"""The fold: the Spark job that reads the event log and writes an epoch of the Delta tables for each batch."""
