"""The catalogue of mutants: coordlocks with one thing wrong, and the suites that must catch each.

Two suites draw from it: ``tests/faults/mutants`` plays scenarios on real servers, and
``tests/simulation/test_mutants.py`` lives through bad days under virtual time.
"""
