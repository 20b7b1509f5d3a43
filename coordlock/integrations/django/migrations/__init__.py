"""Where Django looks for the table of `DjangoFence`."""
