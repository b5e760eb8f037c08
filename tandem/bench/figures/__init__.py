"""Figures that are computed from records: of requests, turns and cells."""
