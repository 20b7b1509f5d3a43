"""The contract between the kernel and a coordination service.

A backend is one client's connection to one service, with one session at a time. It knows how to
keep ordered, ephemeral contenders; it knows nothing of locks. Everything that could be decided
once for all services (admission, deadlines, retries, loss) is decided in the kernel.

Rules for every method that returns a future:

* It returns at once and never blocks, whatever the state of the connection.
* The future is a `coordlock.runtime.promise.Promise`. It is completed from any thread, or at once.
* It fails with these errors alone:

  * `BackendUnavailable`: no answer came, so the outcome may be unknown. The kernel asks again.
  * `SessionLost`: the session has ended.
  * `AuthenticationFailed`: the service refuses the credentials, or they do not allow the request.
  * `Evicted`: the contender that the request needs is not in its queue.
  * `VersionMismatch`: what the request changes has another version than it expects.
  * `TooLarge`: the request exceeds a limit of the service, which did nothing of it.
  * `BackendError`: the service refused the request for any other reason.

* It may stay pending while the service is silent; the kernel bounds every wait. A request that
  can no longer be answered must fail, so that nothing leaks.

What some services can do besides is stated in contracts of their own: `Transactions`, `EntrySets`,
`PublishedValues`, `ObservableQueues` and `Data`. A backend derives from one when its service can do
it, or has all its methods. A backend that lacks one is not an instance of it.
"""

from coordlock.runtime.lazily import names_of

# As in `coordlock`: most programs need few of these.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from coordlock.backend.capabilities import Capabilities
    from coordlock.backend.contract import Backend, ServiceInfo, SessionInfo, SessionListener
    from coordlock.backend.data import (
        Data,
        Delete,
        Expect,
        Listing,
        Operation,
        Put,
        Stored,
        Transactions,
    )
    from coordlock.backend.entries import EntrySets
    from coordlock.backend.observation import ObservableQueues, Observation, View
    from coordlock.backend.values import PublishedValues

else:
    __getattr__ = names_of(
        __name__,
        {
            "capabilities": "Capabilities",
            "contract": "Backend ServiceInfo SessionInfo SessionListener",
            "data": "Data Delete Expect Listing Operation Put Stored Transactions",
            "entries": "EntrySets",
            "observation": "ObservableQueues Observation View",
            "values": "PublishedValues",
        },
    )

__all__ = [
    "Backend",
    "Capabilities",
    "Data",
    "Delete",
    "EntrySets",
    "Expect",
    "Listing",
    "ObservableQueues",
    "Observation",
    "Operation",
    "PublishedValues",
    "Put",
    "ServiceInfo",
    "SessionInfo",
    "SessionListener",
    "Stored",
    "Transactions",
    "View",
]
