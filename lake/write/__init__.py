# SPDX-License-Identifier: Apache-2.0
"""Epochs: one commit of all tables at a time, their order, digests and maintenance."""
