# SPDX-License-Identifier: Apache-2.0
"""What one Spark task does with its share of a micro-batch, and the Arrow tables that it hands to the writer."""
