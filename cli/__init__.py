# SPDX-License-Identifier: Apache-2.0
"""The command line: what ./routelake hands over to. main.py has the commands, one file each for what is longer."""
