# SPDX-License-Identifier: Apache-2.0
"""The command line behind ./routelake. main.py has the commands, and longer commands have their own files."""
