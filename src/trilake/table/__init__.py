"""Shared by all formats: tables, explanations, findings, checksums, comparison, Arrow in and out."""
