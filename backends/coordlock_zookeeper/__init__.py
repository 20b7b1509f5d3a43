"""The ZooKeeper backend: contenders are ephemeral sequential znodes, tokens are their czxids."""

from coordlock.errors import MissingExtra

try:
    import kazoo  # noqa: F401
except ImportError:
    raise MissingExtra(
        problem="the zookeeper backend needs the package kazoo", extra="zookeeper"
    ) from None

from coordlock_zookeeper.backend import ZookeeperBackend

__all__ = ["ZookeeperBackend"]
