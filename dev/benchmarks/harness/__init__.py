# SPDX-License-Identifier: Apache-2.0
"""Common parts of the benches: the load generator, the peers, the machine, results and charts."""
