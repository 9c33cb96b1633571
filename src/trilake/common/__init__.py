"""What every layer uses: progress, runtime (clock, ids, waiting), optional imports, argument checks, text layout."""
