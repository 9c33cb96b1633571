"""What every format offers: tables, explanations, findings, checksums, comparison, and Arrow in and out."""
