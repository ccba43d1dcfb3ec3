# SPDX-License-Identifier: Apache-2.0
"""What talks to routelake, and what starts it: the command line."""
