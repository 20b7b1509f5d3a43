"""redis-py's errors, as coordlock's. The only place where they are judged."""

from __future__ import annotations

from typing import Final

from redis import exceptions

from coordlock.errors import AuthenticationFailed, BackendError, BackendUnavailable, TooLarge

__all__ = ["SERVICE", "client_closed", "is_elsewhere", "translate"]

SERVICE: Final = "redis"

#: Refusals of a server that is not the primary any more, or has not all of the data or the script.
_ELSEWHERE: Final = ("UNBLOCKED", "NOREPLICAS", "NOTREADY")
#: The same, where redis-py takes the code off.
_ELSEWHERE_CLASSES: Final = (
    *(exceptions.MovedError, exceptions.AskError, exceptions.ReadOnlyError),
    *(exceptions.BusyLoadingError, exceptions.ClusterDownError, exceptions.TryAgainError),
    *(exceptions.MasterDownError, exceptions.NoScriptError),
)
#: Refusals while something keeps it busy.
_BUSY: Final = ("BUSY",)
_RIGHTS: Final = "the user must be allowed the commands and the keys and channels below the root"
#: What to do about a refusal, by the words in it.
_ADVICE: Final = (
    ("no permissions", _RIGHTS),
    ("user executing the script", _RIGHTS),
    ("No permissions", _RIGHTS),  # since 7.2, of keys and channels
    ("ACL failure in script", _RIGHTS),  # since 7.2
    # redis-py takes the codes NOAUTH and OOM off.
    ("Authentication required", "give a username and a password"),
    (
        "used memory > 'maxmemory'",
        "the server's memory is full: raise maxmemory, or delete what is not needed",
    ),
    ("MISCONF", "the server cannot save its data: see its log"),
    ("WRONGTYPE", "another program keeps something else at one of coordlock's keys"),
    ("SENTINEL", "this is no Sentinel: the option sentinel wants Sentinels as hosts"),
    ("unknown command", "is this a Redis of 6.2 or later, and no proxy that knows no scripts?"),
    ("SELECT is not allowed", "a cluster has the database 0 alone: leave the option db out"),
    ("DB index", "the server has fewer databases: see the option db"),
)
_LOGIN: Final = (
    *("WRONGPASS", "NOPERM", "invalid password", "without any password"),
    *("user executing the script", "ACL failure in script"),
)
#: What redis-py and the system raise.
_KNOWN: Final = (exceptions.RedisError, OSError, ValueError, AttributeError)


def client_closed() -> BackendUnavailable:
    """Why a request is not sent any more."""
    return BackendUnavailable(SERVICE, "the client is closed")


def is_elsewhere(error: BaseException) -> bool:
    """Whether the connection is to be given up, because another server may do better."""
    if isinstance(error, _ELSEWHERE_CLASSES):
        return True
    return str(error).startswith(_ELSEWHERE) or "non local key" in str(error)


def translate(error: BaseException, where: str = "", *, is_plain: bool = False) -> BackendError:
    """The error for a request to ``where`` that raised ``error``.

    ``is_plain`` if that was the first one of a connection without TLS.
    """
    at = f"{where}: " if where else ""
    if not isinstance(error, _KNOWN):
        # A credential provider of the program's may do better the next time.
        return BackendUnavailable(SERVICE, f"{at}{type(error).__name__}: {error}")
    text = str(error) or type(error).__name__
    advice = next((f"; {advice}" for word, advice in _ADVICE if word in text), "")
    login = (exceptions.AuthenticationError, exceptions.NoPermissionError)
    if isinstance(error, login) or any(word in text for word in _LOGIN):
        return AuthenticationFailed(SERVICE, at + text + advice)
    if is_elsewhere(error) or text.startswith(_BUSY):
        return BackendUnavailable(SERVICE, at + text + advice)
    if "invalid bulk length" in text or "too big" in text or "exceeds maximum" in text:
        return TooLarge(SERVICE, at + text)
    if isinstance(error, exceptions.ResponseError):
        return BackendError(SERVICE, at + text + advice)
    if is_plain and "reset by peer" in text:
        text += "; does this port want TLS, as by rediss://?"
    elif "handshake" in str(error.__context__) and "imeout" in text:
        text += "; TLS was not answered: is this a port without it?"
    return BackendUnavailable(SERVICE, at + text)
