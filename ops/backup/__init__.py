# SPDX-License-Identifier: Apache-2.0
"""Back-up of a data directory while it is in use, and its restoration. See docs/how-to/operate/backup-restore.md."""
