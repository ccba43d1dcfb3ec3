# SPDX-License-Identifier: Apache-2.0
"""The console: what a browser loads from /console. Plain modules without a build, and one library for charts."""
