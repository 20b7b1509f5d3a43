"""Whether coordlock keeps its promises while the service suffers, and whether that would be seen.

``test_runs`` has a short run of the testbed for each workload. Two more test what judges the runs:
``checkers``, with histories made by hand or at random, and ``mutants``, with mistakes made in
coordlock.
"""
