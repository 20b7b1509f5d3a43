import pytest
from shop.celery import app

from coordlock.integrations import celery, django

pytest_plugins = ["coordlock.integrations.pytest"]


@pytest.fixture(autouse=True)
def locks(lock_service):
    """A lock service of each test's own, in memory, for Django and for Celery."""
    with lock_service.serve(django.get_client()), lock_service.serve(celery.get_client(app)):
        yield lock_service
