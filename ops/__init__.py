# SPDX-License-Identifier: Apache-2.0
"""Tools for operators: backup, doctor and verification."""
