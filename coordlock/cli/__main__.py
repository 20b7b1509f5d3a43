"""``python -m coordlock.cli`` does what ``coordlock`` does."""

from coordlock.cli import script

script()
