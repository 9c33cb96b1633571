"""What readers of Delta tables may ask for: times, paths, change feeds."""
