"""The suites of the recipes, which `tests.contract.test_suites` runs on every backend."""

import pkgutil

import pytest

# So that a failed assertion of a suite shows its values.
pytest.register_assert_rewrite(
    *(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}."))
)
