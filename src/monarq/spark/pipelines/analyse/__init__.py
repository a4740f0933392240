"""The pipeline `analyse`: from what a lake has to figures, findings in words and a report.

Reads the lake and writes below `analysis/` in it, and nothing else.
"""
