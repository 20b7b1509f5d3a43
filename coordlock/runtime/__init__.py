"""Promises, drivers, clocks and threads: what runs protocols, and knows nothing of locks."""
