"""Plans of the JVM, put together."""
