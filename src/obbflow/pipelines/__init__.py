"""Kedro wiring: nodes and pipelines, one folder each."""
