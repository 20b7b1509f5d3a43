"""Clients of coordlock at work while their service suffers, and whether it kept its promises.

The processes of a run, and where the code of each is:

* the runner, which starts and kills the others and judges their journals: ``soak``; in it the
  ``network``, the ``nemesis``, and the observer of the service's own record, ``truth``;
* the nodes of the service under test: ``systems``;
* the client processes: ``clients``;
* the resource, which clients protect by locks: ``resource``.

Two more test the tests: ``checkers``, with histories made by hand or at random, and ``mutants``,
with mistakes made in coordlock.
"""
