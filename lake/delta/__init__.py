# SPDX-License-Identifier: Apache-2.0
"""Delta tables at the level of files: log entries, schemas, data files, statistics."""
