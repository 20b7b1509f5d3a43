"""What tests, measurements and scripts share: servers, what breaks them, and clients at work.

``servers`` starts real services as local processes, and ``order`` tells whether a client hears of
departures in order. The other packages are the parts of a run: clients of coordlock work while
their service suffers, and the run tells whether coordlock kept its promises. Its processes, and
where the code of each is:

* the runner, which starts and kills the others and judges their journals: ``soak``; in it the
  ``network``, the ``nemesis``, and the observer of the service's own record, ``truth``;
* the nodes of the service under test: ``systems``;
* the client processes: ``clients``;
* the resource, which clients protect by locks: ``resource``.

The testbed imports the library and never the tests. The library never imports the testbed.
"""
