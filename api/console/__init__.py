# SPDX-License-Identifier: Apache-2.0
"""The console: what a browser loads from /console. Plain modules of ours, without a build and without libraries."""
