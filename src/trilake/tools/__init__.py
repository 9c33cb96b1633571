"""Commands on whole tables: convert, verify, repair, diff, report."""
