"""Checks of `yarrow doctor`, one module per subject, and their report."""
