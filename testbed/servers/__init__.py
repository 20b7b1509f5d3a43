"""Real coordination services, started as local processes for one test run."""
