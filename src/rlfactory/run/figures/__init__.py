"""Figures in a run folder: curves, image grids, tables of texts."""
