"""The suites of other locks, run on coordlock through adapters: a measure, no part of the tests.

``make peers`` fetches the peers' source archives, runs their tests of locks as they are, and says
which pass. Those that are not meant to pass stand in ``left_out.toml`` with the reason.
"""
