"""Helpers that engines share."""
