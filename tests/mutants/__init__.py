"""The catalogue of mutants: coordlocks with one thing wrong, and what must catch each.

``test_mutants.py`` lives through bad days with them under virtual time, or runs the tests that are
the home of the promise and must fail. ``drawn.json`` lists faults that a tool has drawn:
``scripts/mutants.py`` plants them.
"""
