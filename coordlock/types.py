"""What calls return: kinds of locks and grants, views, signals, for annotations.

The names that most programs write are in `coordlock` itself. These are rarely written: what a
client makes or a call returns has them. To import this module loads all of them.
"""

from __future__ import annotations

from coordlock.backend import ServiceInfo as ServiceInfo
from coordlock.backend import VersionedValue as VersionedValue
from coordlock.client import Connecting as Connecting
from coordlock.client.admin import Admin as Admin
from coordlock.client.admin import AsyncAdmin as AsyncAdmin
from coordlock.client.records import Record as Record
from coordlock.client.state import ClientState as ClientState
from coordlock.client.state import ClientStatus as ClientStatus
from coordlock.jobs.ledger import SlotInfo as SlotInfo
from coordlock.jobs.view import JobInfo as JobInfo
from coordlock.locks.keyed_lock import AsyncKeyedLock as AsyncKeyedLock
from coordlock.locks.keyed_lock import KeyedLock as KeyedLock
from coordlock.locks.reentrant import (
    AsyncReentrantGrant as AsyncReentrantGrant,
)
from coordlock.locks.reentrant import (
    AsyncReentrantLock as AsyncReentrantLock,
)
from coordlock.locks.reentrant import (
    ReentrantGrant as ReentrantGrant,
)
from coordlock.locks.reentrant import (
    ReentrantLock as ReentrantLock,
)
from coordlock.locks.several import (
    AsyncMultiGrant as AsyncMultiGrant,
)
from coordlock.locks.several import (
    AsyncMultiLock as AsyncMultiLock,
)
from coordlock.locks.several import (
    GrantPart as GrantPart,
)
from coordlock.locks.several import (
    MultiGrant as MultiGrant,
)
from coordlock.locks.several import (
    MultiLock as MultiLock,
)
from coordlock.locks.signals import AsyncSignal as AsyncSignal
from coordlock.locks.signals import Signal as Signal
from coordlock.locks.upgradeable import (
    AsyncUpgradeableGrant as AsyncUpgradeableGrant,
)
from coordlock.locks.upgradeable import (
    AsyncUpgradeableLock as AsyncUpgradeableLock,
)
from coordlock.locks.upgradeable import (
    UpgradeableGrant as UpgradeableGrant,
)
from coordlock.locks.upgradeable import (
    UpgradeableLock as UpgradeableLock,
)
from coordlock.model.claim import Claim as Claim
from coordlock.model.claim import Convertible as Convertible
from coordlock.model.claim import Permit as Permit
from coordlock.model.contender import Contender as Contender
from coordlock.model.contender import Owner as Owner
from coordlock.model.queue_entry import QueueEntry as QueueEntry
from coordlock.model.waits import Deadlock as Deadlock
from coordlock.model.waits import DeadlockStep as DeadlockStep
from coordlock.recipes.election import Candidate as Candidate
from coordlock.recipes.group import GroupView as GroupView
from coordlock.recipes.group import Member as Member
from coordlock.recipes.membership import (
    AsyncMembership as AsyncMembership,
)
from coordlock.recipes.membership import (
    AsyncPresence as AsyncPresence,
)
from coordlock.recipes.membership import (
    Membership as Membership,
)
from coordlock.recipes.membership import (
    Presence as Presence,
)
from coordlock.recipes.shared.observer import AsyncObserver as AsyncObserver
from coordlock.recipes.shared.observer import Observer as Observer
from coordlock.recipes.values import ValuesView as ValuesView
from coordlock.records.transaction import (
    AsyncTransaction as AsyncTransaction,
)
from coordlock.records.transaction import (
    Transaction as Transaction,
)
from coordlock.work.view import ItemView as ItemView
from coordlock.work.view import WorkQueueStats as WorkQueueStats

__all__ = sorted(name for name in globals() if name[0].isupper())  # noqa: PLE0605
