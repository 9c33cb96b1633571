"""Lance, Trevni and conversions."""
