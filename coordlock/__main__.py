"""``python -m coordlock`` does what ``coordlock`` does."""

import sys

from coordlock.cli import main

sys.exit(main())
