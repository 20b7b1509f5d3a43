"""The observer of a run, and the service's own record that it reads."""
