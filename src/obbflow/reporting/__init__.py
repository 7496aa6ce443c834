"""Figures, drawn tiles and the report page."""
