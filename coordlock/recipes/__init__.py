"""What is built of locks: several at once, trees of locks."""
