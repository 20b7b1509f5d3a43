# Made by `python -m tests.unit.test_api` of the table in `__init__.py`.
from coordlock import errors as errors, types as types
from coordlock.backend.config import settings_from_env as settings_from_env
from coordlock.client import AsyncClient as AsyncClient, Client as Client, connect as connect, connect_async as connect_async
from coordlock.errors import AcquireTimeout as AcquireTimeout, BackendError as BackendError, BackendUnavailable as BackendUnavailable, ConfigurationError as ConfigurationError, CoordlockError as CoordlockError, DeadlockDetected as DeadlockDetected, JobNotRun as JobNotRun, LockLost as LockLost, NameConflict as NameConflict, SessionLost as SessionLost, StaleToken as StaleToken, WaitCancelled as WaitCancelled, WaitError as WaitError, WaitTimeout as WaitTimeout, WorkQueueEmpty as WorkQueueEmpty, WorkQueueFull as WorkQueueFull
from coordlock.jobs.job import AsyncJob as AsyncJob, Job as Job
from coordlock.jobs.run import AsyncJobRun as AsyncJobRun, JobRun as JobRun
from coordlock.jobs.schedule import Cron as Cron, Every as Every
from coordlock.locks.grant import AsyncGrant as AsyncGrant, Grant as Grant, GrantState as GrantState
from coordlock.locks.lock import AsyncLock as AsyncLock, Lock as Lock
from coordlock.model.claim import Mode as Mode
from coordlock.recipes.barrier import AsyncBarrier as AsyncBarrier, Barrier as Barrier
from coordlock.recipes.counter import AsyncCounter as AsyncCounter, Counter as Counter
from coordlock.recipes.double_barrier import AsyncDoubleBarrier as AsyncDoubleBarrier, DoubleBarrier as DoubleBarrier
from coordlock.recipes.election import AsyncElection as AsyncElection, Election as Election
from coordlock.recipes.gate import AsyncGate as AsyncGate, Gate as Gate
from coordlock.recipes.group import AsyncGroup as AsyncGroup, Group as Group
from coordlock.recipes.latch import AsyncLatch as AsyncLatch, Latch as Latch
from coordlock.recipes.term import AsyncTerm as AsyncTerm, Term as Term
from coordlock.recipes.value import AsyncValue as AsyncValue, Value as Value
from coordlock.recipes.values import AsyncValues as AsyncValues, Values as Values
from coordlock.runtime.deadline import Cancellation as Cancellation
from coordlock.runtime.signals import release_on_signals as release_on_signals
from coordlock.settings import DEFAULT as DEFAULT, Settings as Settings
from coordlock.work.item import AsyncItem as AsyncItem, Item as Item
from coordlock.work.queue import AsyncWorkQueue as AsyncWorkQueue, WorkQueue as WorkQueue

__version__: str
__all__: list[str]
