"""Rules for rows, and generated values."""
