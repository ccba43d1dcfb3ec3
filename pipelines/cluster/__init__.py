# SPDX-License-Identifier: Apache-2.0
"""The fold's executors on other machines: the cluster and its Spark options, and a trial of its executors."""
