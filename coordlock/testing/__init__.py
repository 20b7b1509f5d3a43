"""Parts for the tests of backends and of applications that use coordlock.

* `coordlock.testing.backend_contract`, `coordlock.testing.lock_contract`: the suites that every
  backend passes; they need pytest.
* `coordlock.testing.transaction_contract`: the suite of those that guard data by grants.
* `coordlock.testing.entry_set_contract`, `coordlock.testing.published_value_contract`,
  `coordlock.testing.observation_contract`, `coordlock.testing.data_contract`: those of the other
  additions to the contract.
* `coordlock.testing.fence_contract`: the suite that every fence passes.
* `coordlock.testing.proxy`: a TCP proxy that loses, delays, cuts and counts.
* `coordlock.testing.faults`: the history of a run with faults, and checkers that judge it.
* `coordlock.testing.waiting`: waiting for a condition.
"""

import sys

if "pytest" in sys.modules:
    # So that a failed assertion of a suite shows its values.
    sys.modules["pytest"].register_assert_rewrite(
        *(
            f"{__name__}.{suite}_contract"
            for suite in (
                "backend",
                "data",
                "entry_set",
                "fence",
                "lock",
                "observation",
                "published_value",
                "transaction",
            )
        )
    )
