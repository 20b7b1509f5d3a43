"""Applications as users write them, with a client at the top of a module."""
