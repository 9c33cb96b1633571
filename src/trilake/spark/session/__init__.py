"""Sessions, options, errors and jobs: what every format needs from Spark."""
