"""What every row must satisfy, and the values that a table gives by itself."""
