# SPDX-License-Identifier: Apache-2.0
"""Who may what, how often, and over what: decided without I/O, for every listener alike."""
