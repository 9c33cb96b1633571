"""What users meet: readers, writers and streams under the names that Spark has for them."""
