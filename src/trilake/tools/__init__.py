"""Commands on whole tables: convert, verify, repair, diff, drop, report."""
