"""``python -m coordlock`` does what ``coordlock`` does."""

from coordlock.cli import script

script()
