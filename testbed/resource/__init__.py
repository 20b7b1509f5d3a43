"""What runs in the resource's process, and how clients talk to it."""
