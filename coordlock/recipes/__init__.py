"""What is built of queues and of data in the service; each is imported when it is first used.

- More kinds of locks: `MultiLock` for several names and for subtrees, reentrant locks, locks that
  keep a value or have a lock-delay, and requests to release a lock.
- Who leads, and who is there: `Election`, `Group`.
- Shared data: `Value`, `Values`, `Counter`, and `WorkQueue` with its jobs.
- Waiting for each other: `Latch`, `Gate`, `Barrier`, `DoubleBarrier`.
- `Observer`, which follows the state of any of these.

The clients of `coordlock` make them, by the methods in `coordlock.recipe_makers`.
"""
