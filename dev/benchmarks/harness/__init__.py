# SPDX-License-Identifier: Apache-2.0
"""What the benches share: the load generator, the peers, the machine, results and charts."""
