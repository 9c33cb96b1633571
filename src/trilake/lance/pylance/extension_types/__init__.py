"""Types of Arrow that users of the format know: short floats, and images."""
