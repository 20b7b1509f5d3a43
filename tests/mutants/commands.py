"""Mistakes of the command line with the command that it runs."""

from __future__ import annotations

from coordlock.cli.supervision import Limits, Supervision
from tests.mutants.mutant import Changes, mutant


@mutant(
    "A command works until its lock is lost, and a moment beside the next holder.",
    "tests/cli/test_slots.py"
    "::test_a_command_that_hangs_ends_after_max_hold_and_its_slot_has_failed",
)
def ends_a_command_after_its_lease() -> Changes:
    return [(Limits, "of", lambda _, grace: Limits(0.0, 0.0, grace))]


@mutant(
    "A command that was cut off and ended with 0 has done its slot.",
    "tests/cli/test_slots.py::test_a_command_that_ends_with_0_at_a_signal_has_not_done_its_slot"
    "[False-at-most-once]",
)
def takes_an_interrupted_command_for_done() -> Changes:
    return [(Supervision, "told_to_end", None)]
