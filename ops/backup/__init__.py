# SPDX-License-Identifier: Apache-2.0
"""Backup of a data directory in use, and restore of a backup. See docs/how-to/operate/backup-restore.md."""
