"""Models: what they are asked, and what they answer."""
