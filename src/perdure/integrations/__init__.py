"""What connects perdure with the programs that watch over a service. Each needs an extra of its own, and is imported where it is used."""
