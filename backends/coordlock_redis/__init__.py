"""coordlock on Redis or Valkey: a script for each request, on the server's clock.

::

    backend       the contract: queues, data, observations
    session       the session, and what Redis publishes
    watches       departures: what is watched, and how the client learns of them
    data          what is read and written beside the queues; pure
    contenders    contenders as arguments and answers of scripts; pure
    request_thread  sends requests, and receives answers
    subscription  the session's connection: heartbeats, and messages
    requests      one run of the script, and what each of them is given
    scripts       the scripts, from the files in ``lua``
    servers       which server has the data, and a connection to it
    access        how to reach it, by the settings
    given_client  the same, as a client of redis-py or valkey-py does
    describe      what ``coordlock doctor`` shows
    redlock       a package: locks in several servers that know nothing of each other
    compat        a package: names that are shared with redis-py's locks
    options       what can be configured; pure
    errors        redis-py's errors as coordlock's; pure

The service must be Redis 6.2 or later, or Valkey.
"""

from coordlock.errors import ConfigurationError

try:
    from coordlock_redis.backend import (
        RedisBackend,
        RedisTLSBackend,
        RedisUnixBackend,
        ValkeyBackend,
    )
    from coordlock_redis.redlock import RedlockBackend
except ImportError as error:
    if (error.name or "").split(".")[0] != "redis":
        raise
    raise ConfigurationError.missing(
        problem=f"the Redis backend needs redis-py ({error})", extra="redis"
    ) from error

__all__ = [
    "RedisBackend",
    "RedisTLSBackend",
    "RedisUnixBackend",
    "RedlockBackend",
    "ValkeyBackend",
]
