"""What a conversion writes, a file a format."""
