"""The classes that users of the format know."""
