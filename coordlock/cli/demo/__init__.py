"""``coordlock demo``: processes that contend for a lock, crash and freeze, before your eyes."""
