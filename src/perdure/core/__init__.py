"""The rules of a durable session, free of I/O, clocks, randomness and ``async``."""
