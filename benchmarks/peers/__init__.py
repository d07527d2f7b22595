"""What other libraries cost for the same work, on the same disk, in the same run: ``make compare``."""
