"""Pipelines: archive, analyse, replay, compact, and the user's own."""
