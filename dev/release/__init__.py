# SPDX-License-Identifier: Apache-2.0
"""What makes a release: its files, the checklist before it, and the golden copies that later releases must take."""
