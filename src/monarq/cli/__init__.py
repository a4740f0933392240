"""The command line: one module for each group of commands.

Answers (tables, JSON) go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 no
such command or option, or wrong settings, 130 interrupted.
"""
