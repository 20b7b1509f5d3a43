"""What is built of locks and of data in the service; each is imported when it is first used.

- Who leads, and who is there: `Election`, `Group`.
- Shared data: `Value`, `Values`, `Counter`.
- Waiting for each other: `Latch`, `Gate`, `Barrier`, `DoubleBarrier`.
- `Observer`, which follows the state of any of these.

The clients of `coordlock` make them, by the methods in `coordlock.client.recipe_makers`.
"""
