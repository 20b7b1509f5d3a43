"""All commands: what calls them, what does them, and what they take."""

from __future__ import annotations

from functools import partial
from typing import Final

from coordlock.cli.completers import complete_key, complete_name
from coordlock.cli.completion import SHELLS
from coordlock.cli.options import (
    ACQUIRING,
    CONFLICT,
    DATA,
    EVENT_LINES,
    FOLLOW,
    GRACE,
    HOLDING,
    IF_VERSION,
    LABEL,
    MAX_HOLD,
    NAME,
    NAMES,
    ON_ASK,
    SLOTS,
    VALUE,
    WAITING,
    YES,
    ZERO_IS_DONE,
    address,
    in_json,
)
from coordlock.cli.parser import Argument, Command, Option, number, seconds, whole
from coordlock.model.names import check_name

__all__ = ["COMMANDS", "below"]

_GROUP: Final = "COMMAND [ARGS]..."
_REST: Final = "[--] COMMAND..."
_LATCH: Final = (NAME, Argument("COUNT", "count", read=whole(1, 2**31 - 1)))

# What `--json` prints. These keys are public.
_OWNER: Final = "{host, pid, label, since}"
_IN_USE: Final = (
    "{name, kind, holders, waiters, token, holder, queued_since, oldest_waiter: " + _OWNER + "}"
)
_QUEUE: Final = (
    "{name, kind, contenders: [{position, holding, mode, permits, converting_to, token, owner: "
    + _OWNER
    + ", age, value, session, key}], kept: [{kind, state}]}"
)
_ITEMS: Final = (
    "{name, waiting, taken, delayed, dead, items: [{id, state, deliveries, failures, put_at, data, "
    "worker, since, due, reason, token}]}"
)
_JOB: Final = (
    "name, kind, floor, next, slots: [{slot, state, policy, attempts, owner, token, started, "
    "finished, error}], problem"
)
_PARTY: Final = "{token, owner, since, key, at}"
_DEADLOCKS: Final = (
    "[{victim, steps: [{name, waiter: " + _PARTY + ", blocker: " + _PARTY + ", holding}]}]"
)


def _item_id(text: str) -> str:
    from coordlock.work.layout import number_of  # few commands need it

    return str(number_of(text))


def _names(option: str, dest: str, help: str) -> Option:
    """An option whose value is a name; it can be repeated."""
    return Option(
        option,
        dest=dest,
        read=check_name,
        metavar="NAME",
        repeats=True,
        completer=complete_name,
        help=help,
    )


_IDS: Final = Argument("ID", "ids", read=_item_id, repeats=True)
_KEY: Final = Argument("KEY", "key", completer=complete_key)
_DEMO_TTL: Final = Option(
    "--ttl",
    metavar="DURATION",
    default="2s",
    help="Time-to-live, where there are leases. Default: 2s.",
)

_ALL: Final = (
    Command(
        "",
        "root.coordlock",
        Option("--version", help="Show the version and exit."),
        Option(
            "--completion",
            known=SHELLS,
            metavar="SHELL",
            help="Print what bash, zsh or fish needs to complete commands and names of locks.",
        ),
        rest=_GROUP,
        usage=["[OPTIONS] [COMMAND] [ARGS]..."],
    ),
    Command(
        "run",
        "run.run",
        *NAMES,
        *ACQUIRING,
        MAX_HOLD,
        GRACE,
        ON_ASK,
        *SLOTS,
        rest=_REST,
        usage=[f"NAME [OPTIONS] {_REST}", f"-l NAME -l NAME... [OPTIONS] {_REST}"],
        example="run nightly --timeout 10m -- ./migrate.sh --fast",
    ),
    Command(
        "hold",
        "hold.hold",
        *NAMES,
        *ACQUIRING,
        Option(
            "--for",
            dest="duration",
            read=seconds,
            metavar="DURATION",
            help="Hold it for this long, whatever stdin does.",
        ),
        EVENT_LINES,
        usage=["[OPTIONS] NAME...", "[OPTIONS] --tree PATH..."],
        example="hold nightly --for 30s",
    ),
    Command(
        "ls",
        "ls.ls",
        Argument("PATTERN", "patterns", least=0, repeats=True, completer=complete_name),
        Option(
            "--kept",
            dest="is_kept",
            help="List what is kept: work queues, counters, latches, gates, barriers and more.",
        ),
        in_json(f"[{_IN_USE}]", ", with --kept `[{name, kind, state}]`"),
        example="ls 'nightly*'",
    ),
    Command(
        "show",
        "show.show",
        NAME,
        in_json(_QUEUE),
        example="show nightly",
    ),
    Command(
        "events",
        "events.events",
        NAME,
        in_json("{version, event, time, name, token, owner}", " for each"),
        example="events nightly --json",
    ),
    Command(
        "evict",
        "evict.evict",
        NAME,
        Option(
            "--token",
            group="whom",
            read=whole(1, 2**63 - 1),
            metavar="N",
            help="The holder or waiter with this token.",
        ),
        Option(
            "--all",
            dest="everybody",
            group="whom",
            help="Evict the waiters, the last one first, then the holders.",
        ),
        YES,
        Option("--ask", help="Evict nobody: ask the holder to release the lock."),
        Option("--reason", metavar="TEXT", help="With --ask: why, for the holder to read."),
        Option(
            "--timeout",
            read=seconds,
            metavar="DURATION",
            help="With --ask: how long to wait for the release. Default: 0s.",
        ),
        example="evict nightly --token 33",
    ),
    Command(
        "elect",
        "elect.elect",
        NAME,
        VALUE,
        *HOLDING,
        *WAITING,
        CONFLICT,
        GRACE,
        ON_ASK,
        Option(
            "--http",
            read=address,
            metavar="[HOST:]PORT",
            help="Say by HTTP who leads: /, /leading, /healthz. HOST is 127.0.0.1 by default.",
        ),
        EVENT_LINES,
        rest=f"[{_REST}]",
        example="elect scheduler --value 10.0.0.5:8080 -- ./scheduler",
    ),
    Command(
        "leader",
        "leader.leader",
        NAME,
        FOLLOW,
        in_json("{name, leader: {value, token}}"),
        example="leader scheduler --follow",
    ),
    Command("group", "group", rest=_GROUP, example="group members web"),
    Command(
        "group join",
        "group_join.join",
        NAME,
        VALUE,
        *HOLDING,
        LABEL,
        rest=f"[{_REST}]",
        example="group join web --value 10.0.0.5:8080 -- ./serve",
    ),
    Command(
        "group members",
        "group.members",
        NAME,
        FOLLOW,
        in_json("{name, members: [{value, token, owner, confirmed}]}"),
        example="group members web --follow",
    ),
    Command("queue", "queue", rest=_GROUP, example="queue work mails -- ./send.sh"),
    Command(
        "queue put",
        "queue.put",
        NAME,
        Argument("DATA", "data", least=0, repeats=True),
        Option("--lines", help="Each line of stdin is an item."),
        Option(
            "--delay",
            read=seconds,
            metavar="DURATION",
            default=0.0,
            help="Let nobody take the items before this time has passed.",
        ),
        Option(
            "--max-depth",
            read=whole(1, 2**31),
            metavar="N",
            help="Put nothing while N items wait; the exit status is 75 then.",
        ),
        example="queue put mails 'to: ann' --delay 5m",
    ),
    Command(
        "queue ls",
        "queue.ls",
        NAME,
        Option("--dead", help="List the dead items: those that failed too often."),
        Option(
            "--limit",
            read=whole(1, 10**6),
            metavar="N",
            default=100,
            help="List the first N items. Default: 100.",
        ),
        in_json(_ITEMS),
        example="queue ls mails --dead",
    ),
    Command(
        "queue work",
        "queue_work.work",
        NAME,
        Option(
            "--concurrency",
            read=whole(1, 1000),
            metavar="N",
            default=1,
            help="How many items to work on at the same time. Default: 1.",
        ),
        Option(
            "--count",
            read=whole(1, 2**31),
            metavar="N",
            help="End after N items. Default: only when a signal comes.",
        ),
        Option(
            "--max-failures",
            read=whole(1, 2**31),
            metavar="N",
            default=10,
            help="An item is dead after N failures. Default: 10.",
        ),
        Option(
            "--retry-delay",
            read=seconds,
            metavar="DURATION",
            default=0.0,
            help="How long a failed item waits for the next try. Default: 0s.",
        ),
        ZERO_IS_DONE,
        *HOLDING,
        *WAITING,
        CONFLICT,
        LABEL,
        GRACE,
        rest=_REST,
        example="queue work mails --concurrency 4 -- ./send.sh",
    ),
    Command(
        "queue retry",
        "queue.retry",
        NAME,
        Argument("ID", "ids", read=_item_id, least=0, repeats=True),
        Option("--all", dest="is_all", help="All dead items."),
        example="queue retry mails 17",
    ),
    Command("queue evict", "queue.evict", NAME, _IDS, YES, example="queue evict mails 17"),
    Command("queue remove", "queue.remove", NAME, _IDS, YES, example="queue remove mails 17"),
    Command("queue purge", "queue.purge", NAME, YES, example="queue purge old"),
    Command(
        "jobs",
        "jobs.jobs",
        in_json("[{" + _JOB + "}]"),
        rest=f"[{_GROUP}]",
        example="jobs show nightly",
    ),
    Command(
        "jobs check",
        "jobs.check",
        NAME,
        Option(
            "--max-age",
            read=partial(seconds, most=31_622_400),
            metavar="DURATION",
            help="The job is late if no slot was done within this time.",
        ),
        in_json("{name, state, text, stderr}"),
        example="jobs check nightly --max-age 25h",
    ),
    Command(
        "jobs show",
        "jobs.show",
        NAME,
        in_json("{" + _JOB + ", stderr: {slot, stderr}}"),
        example="jobs show nightly",
    ),
    Command(
        "jobs retry",
        "jobs.retry",
        NAME,
        Argument("SLOT", "slot"),
        example="jobs retry nightly 2026-11-22T02:00Z",
    ),
    Command("value", "value", rest=_GROUP, example="value set /shop/limit 20"),
    Command(
        "value get",
        "value.get",
        _KEY,
        FOLLOW,
        in_json("{key, version, data}"),
        example="value get /shop/limit",
    ),
    Command(
        "value set",
        "value.set",
        _KEY,
        DATA,
        IF_VERSION,
        example="value set /shop/limit 20 --if-version 3",
    ),
    Command(
        "value delete",
        "value.delete",
        _KEY,
        IF_VERSION,
        example="value delete /shop/limit",
    ),
    Command(
        "value ls",
        "value.ls",
        Argument("FOLDER", "key", completer=complete_key),
        Option("--data", dest="with_data", help="Show the data, too."),
        FOLLOW,
        in_json("[{key, version, bytes}]", ", with --follow `{folder, values}`"),
        example="value ls /shop --data",
    ),
    Command("counter", "counter", rest=_GROUP, example="counter add invoices"),
    Command(
        "counter add",
        "counter.add",
        NAME,
        Argument("N", "number", least=0, read=number, default=1),
        in_json("{name, number}"),
        example="counter add invoices",
    ),
    Command(
        "counter get",
        "counter.get",
        NAME,
        FOLLOW,
        in_json("{name, number}"),
        example="counter get invoices --follow",
    ),
    Command("gate", "gate", rest=_GROUP, example="gate shut maintenance"),
    Command("gate shut", "gate.shut", NAME, example="gate shut maintenance"),
    Command("gate open", "gate.open", NAME, example="gate open maintenance"),
    Command("gate wait", "gate.wait", NAME, *WAITING, example="gate wait maintenance"),
    Command("latch", "latch", rest=_GROUP, example="latch wait imports 3 --timeout 10m"),
    Command(
        "latch down",
        "latch.down",
        *_LATCH,
        in_json("{name, count, remaining}"),
        example="latch down imports 3",
    ),
    Command("latch wait", "latch.wait", *_LATCH, *WAITING, example="latch wait imports 3"),
    Command(
        "delete",
        "delete.delete",
        Argument("NAME", "names", read=check_name, repeats=True, completer=complete_name),
        Option(
            "--kind",
            metavar="KIND",
            help="Delete only this kind, as `ls --kept` shows it. Needed if NAME has several.",
        ),
        YES,
        example="delete old-invoices --kind counter",
    ),
    Command(
        "deadlocks",
        "deadlocks.deadlocks",
        in_json(_DEADLOCKS),
        example="deadlocks",
    ),
    Command(
        "setup",
        "setup.setup",
        Argument("SERVICE", "what", known=("postgresql",)),
        Option("--print", dest="prints", help="Show the SQL, and do nothing."),
        Option(
            "--max-ttl",
            read=seconds,
            metavar="DURATION",
            help="The longest ttl of a client, and how long nothing is granted after a failover: "
            "60s at first, and at least.",
        ),
        Option(
            "--restored",
            help="The database is a restored backup: end earlier grants, and give higher tokens.",
        ),
        example="setup postgresql --url postgresql://db1/app",
    ),
    Command(
        "doctor",
        "doctor.doctor",
        in_json("{ok, findings: [{topic, state, detail, advice}]}"),
        example="doctor --url etcd://localhost",
    ),
    Command(
        "exporter",
        "exporter.exporter",
        Option(
            "--listen",
            read=address,
            metavar="[HOST:]PORT",
            default=("127.0.0.1", 9464),
            help="Where Prometheus finds the metrics. Default: 127.0.0.1:9464.",
        ),
        _names("--lock", "locks", "Show this name by itself. Others show by their groups."),
        _names("--election", "elections", "Show whether this election has a leader."),
        _names("--queue", "queues", "Show this work queue."),
        Option(
            "--by-prefix",
            dest="with_prefix",
            group="group",
            help="Group names by what comes before the first / or :.",
        ),
        Option(
            "--collapse-ids",
            dest="with_ids",
            group="group",
            help="Group names that only differ in ids.",
        ),
        Option("--print", dest="is_printed", help="Print the metrics and end."),
        example="exporter --listen 0.0.0.0:9464 --queue mails --election scheduler",
    ),
    Command(
        "demo",
        "demo.demo",
        _DEMO_TTL,
        rest=f"[{_GROUP}]",
        example="demo --url etcd://localhost",
    ),
    Command(
        "demo split-brain",
        "demo.split_brain",
        _DEMO_TTL,
        example="demo split-brain --url etcd://localhost",
    ),
)

#: By what calls them; most used first.
COMMANDS: Final = {command.path: command for command in _ALL}


def below(group: Command) -> list[Command]:
    """The commands of ``group``, in order."""
    return [
        command
        for path, command in COMMANDS.items()
        if path and path.rpartition(" ")[0] == group.path
    ]
