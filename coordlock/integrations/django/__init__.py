"""Django: a client from the settings, a transaction inside of a lock, a fence in the ORM.

::

    INSTALLED_APPS = ["coordlock.integrations.django", ...]
    COORDLOCK = {"url": "etcd://host1:2379,host2:2379/shop", "timeout": 30}

    with locked_atomic(f"account/{name}"):       # the lock outside, the transaction inside
        account = Account.objects.get(name=name)
        account.balance += 1
        account.save()

On several hosts, ``manage.py locked migrate migrate`` migrates on one of them at a time.
"""

from coordlock.integrations.django.client import get_client
from coordlock.integrations.django.fence import DjangoFence
from coordlock.integrations.django.middleware import LockMiddleware
from coordlock.integrations.django.transaction import locked_atomic

__all__ = ["DjangoFence", "LockMiddleware", "get_client", "locked_atomic"]
