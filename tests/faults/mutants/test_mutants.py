"""The checkers catch what coordlock might do wrong, and find nothing where it is right."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from coordlock.testing.faults.bounds import Bounds
from coordlock.testing.faults.exclusion import HeldTogether
from coordlock.testing.faults.fifo import NeverFirst, Overtaken
from coordlock.testing.faults.leaks import Leaked
from coordlock.testing.faults.liveness import Unanswered
from coordlock.testing.faults.loss import EarlyRemoval, MissingSignal
from coordlock.testing.faults.register import LostAdd, StaleAccepted
from coordlock.testing.faults.release import FalselyHeld, FalselyLost
from coordlock.testing.faults.tokens import ForeignToken, RepeatedToken
from coordlock.testing.faults.violation import Violation
from testbed.servers.etcd import EtcdServer
from testbed.servers.zookeeper import ZooKeeperServer
from tests.faults.mutants import mutants, scenarios
from tests.faults.mutants.mutants import Mutation
from tests.faults.mutants.scenarios import Scenario
from tests.faults.mutants.stage import Server, Stage

BOTH: Final = ("etcd", "zookeeper")
#: Nothing takes longer than the time-to-live of whoever is cut off.
BOUNDS: Final = Bounds(signal=250_000_000, notice=1_500_000_000, recovery=3_200_000_000)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake, where it shows, and as what."""

    mutation: Mutation
    scenario: Scenario
    violation: type[Violation]
    backends: tuple[str, ...] = BOTH

    @property
    def name(self) -> str:
        names = {id(value): name for name, value in vars(mutants).items()}
        return names[id(self.mutation)]


MUTANTS: Final = [
    Mutant(
        mutants.grants_without_a_look_at_its_own_contender,
        scenarios.a_waiter_is_evicted,
        NeverFirst,
    ),
    Mutant(
        mutants.takes_any_departure_for_its_turn, scenarios.one_in_the_middle_gives_up, HeldTogether
    ),
    Mutant(
        mutants.misses_some_departures,
        scenarios.the_first_of_two_leaves_a_semaphore,
        Unanswered,
    ),
    Mutant(
        mutants.takes_departures_for_ordered,
        scenarios.a_waiter_is_evicted_before_it_hears_of_anything,
        NeverFirst,
        ("etcd",),
    ),
    Mutant(
        mutants.keeps_its_place_when_it_counts_as_lost,
        scenarios.heartbeats_find_no_leader,
        Unanswered,
        ("zookeeper",),
    ),
    Mutant(mutants.gives_one_permit_too_many, scenarios.a_semaphore_is_full, HeldTogether),
    Mutant(
        mutants.waits_for_the_nearest_alone,
        scenarios.the_first_of_two_leaves_a_semaphore,
        Unanswered,
    ),
    Mutant(
        mutants.lets_readers_pass_writers, scenarios.a_reader_comes_under_a_writer, HeldTogether
    ),
    Mutant(
        mutants.lets_readers_pass_writers,
        scenarios.a_reader_comes_behind_a_writer_who_waits,
        Overtaken,
    ),
    Mutant(
        mutants.says_held_whatever_has_happened,
        scenarios.a_holder_is_evicted_and_releases,
        FalselyHeld,
    ),
    Mutant(
        mutants.takes_its_own_removal_for_another_ones, scenarios.a_semaphore_is_full, FalselyLost
    ),
    Mutant(
        mutants.leaves_its_contenders_when_it_is_closed,
        scenarios.a_visitor_leaves_during_an_outage,
        Unanswered,
        ("zookeeper",),
    ),
    Mutant(mutants.withdraws_once, scenarios.a_release_finds_no_server, Leaked),
    Mutant(
        mutants.never_looks_for_what_came_late, scenarios.a_create_arrives_late, Leaked, ("etcd",)
    ),
    Mutant(
        mutants.sends_again_under_another_id, scenarios.the_answer_to_a_create_is_lost, Unanswered
    ),
    Mutant(
        mutants.counts_the_time_to_live_from_the_reply,
        scenarios.an_answer_to_a_heartbeat_is_late,
        HeldTogether,
    ),
    Mutant(mutants.has_no_deadline, scenarios.a_holder_is_cut_off, HeldTogether),
    Mutant(mutants.does_not_hear_of_its_own_removal, scenarios.a_holder_is_evicted, MissingSignal),
    Mutant(mutants.watches_from_now_on, scenarios.a_watch_is_set_late, Unanswered, ("etcd",)),
    Mutant(
        mutants.takes_the_revision_of_the_answer_for_the_token,
        scenarios.the_answer_to_a_create_is_lost,
        ForeignToken,
        ("etcd",),
    ),
    Mutant(
        mutants.orders_sequences_as_text, scenarios.the_eleventh_comes, HeldTogether, ("zookeeper",)
    ),
    Mutant(mutants.orders_by_the_whole_name, scenarios.several_come, HeldTogether, ("zookeeper",)),
    Mutant(
        mutants.adopts_the_node_of_an_old_session,
        scenarios.a_session_is_lost_with_a_create,
        EarlyRemoval,
        ("zookeeper",),
    ),
    Mutant(
        mutants.forgets_watches_with_the_connection,
        scenarios.a_waiter_changes_its_connection,
        Unanswered,
        ("zookeeper",),
    ),
    Mutant(
        mutants.takes_the_sequence_for_the_token,
        scenarios.a_queue_is_deleted,
        RepeatedToken,
        ("zookeeper",),
    ),
    Mutant(mutants.accepts_any_token, scenarios.a_holder_of_the_past_writes, StaleAccepted),
    Mutant(mutants.commits_without_its_contender, scenarios.a_holder_of_the_past_commits, LostAdd),
    Mutant(mutants.fences_writes_only, scenarios.a_holder_of_the_past_writes, StaleAccepted),
]

#: What is played without a mutant: all that is played with one, on the same backends.
PLAYED: Final = dict.fromkeys((one.scenario, scheme) for one in MUTANTS for scheme in one.backends)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """Servers that these tests have for themselves, each started when it is needed."""
    started: dict[str, Server] = {}
    yield started
    for server in started.values():
        server.stop()


def play(scheme: str, request: pytest.FixtureRequest) -> Stage:
    """A stage on the server of that scheme."""
    servers: dict[str, Server] = request.getfixturevalue("servers")
    request.getfixturevalue(scheme)  # so that --without leaves it out
    if scheme not in servers:
        kind = {"etcd": EtcdServer, "zookeeper": ZooKeeperServer}[scheme]
        factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        servers[scheme] = kind(factory.mktemp(scheme)).start()
    directory: Path = request.getfixturevalue("tmp_path")
    return Stage(servers[scheme], request.getfixturevalue("root"), directory)


@pytest.mark.parametrize(
    ("mutant", "scheme"),
    [
        pytest.param(mutant, scheme, id=f"{mutant.name}-{mutant.scenario.__name__}-{scheme}")
        for mutant in MUTANTS
        for scheme in mutant.backends
    ],
)
def test_a_mutant_is_caught(mutant: Mutant, scheme: str, request: pytest.FixtureRequest) -> None:
    with play(scheme, request) as stage, mutant.mutation():
        mutant.scenario(stage)
        verdict = stage.verdict(BOUNDS)
    kinds = {type(one) for one in verdict.all()}
    assert mutant.violation in kinds, f"a mutant that survives is a missing test\n{verdict}"


@pytest.mark.parametrize(
    ("scenario", "scheme"),
    [
        pytest.param(scenario, scheme, id=f"{scenario.__name__}-{scheme}")
        for scenario, scheme in PLAYED
    ],
)
def test_nothing_is_found_without_a_mutant(
    scenario: Scenario, scheme: str, request: pytest.FixtureRequest
) -> None:
    with play(scheme, request) as stage:
        scenario(stage)
        verdict = stage.verdict(BOUNDS)
    assert verdict.holds, str(verdict)


def test_every_mutation_and_every_scenario_is_used() -> None:
    functions = {
        name: one
        for name, one in vars(mutants).items()
        if inspect.isfunction(one)
        and one.__module__ == mutants.__name__
        and not name.startswith("_")
        and not inspect.signature(one).parameters
    }
    assert {one.name for one in MUTANTS} == functions.keys()
    played = {one.scenario for one in MUTANTS}
    scenes = [
        one
        for one in vars(scenarios).values()
        if inspect.isfunction(one)
        and one.__module__ == scenarios.__name__
        and not one.__name__.startswith("_")
        and list(inspect.signature(one).parameters) == ["stage"]
    ]
    assert scenes
    assert all(one in played for one in scenes)
