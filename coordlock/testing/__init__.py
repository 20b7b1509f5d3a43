"""Parts for the tests of backends and of applications that use coordlock.

* `coordlock.testing.backend_contract`, `coordlock.testing.capability_contract`: the suites that
  every backend passes; they need pytest.
* `coordlock.testing.queue_contract`, `coordlock.testing.lock_contract`,
  `coordlock.testing.observation_contract`: those of services that keep an order.
* `coordlock.testing.entry_set_contract`, `coordlock.testing.published_value_contract`,
  `coordlock.testing.data_contract`, `coordlock.testing.transaction_contract`: those of the other
  capabilities, and of what grants guard.
* `coordlock.testing.fence_contract`: the suite that every fence passes.
* `coordlock.testing.lock_service`: a service in memory for one test, with its clock and its losses.
* `coordlock.testing.proxy`: a TCP proxy that loses, delays, cuts and counts.
* `coordlock.testing.waiting`: waiting for a condition.
"""

import pkgutil
import sys

if "pytest" in sys.modules:
    # So that a failed assertion of a suite shows its values.
    sys.modules["pytest"].register_assert_rewrite(
        *(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}."))
    )
