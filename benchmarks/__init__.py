"""What perdure costs, as ratios to a bare loop that writes the same bytes in the same run: ``python -m benchmarks``."""
