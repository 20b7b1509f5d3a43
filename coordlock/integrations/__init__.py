"""Adapters to frameworks, one module each; each needs the framework installed."""
