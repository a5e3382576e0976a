"""The comparison's report: what is measured is shown with its spread, what is not with its reason."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.beside import limits, report, targets
from benchmarks.beside.rounds import Measured, _measure_limits
from benchmarks.beside.workloads import FAMILIES, WORKLOADS, Kind, chosen
from benchmarks.peers.model import Ability, Mode, lacks
from benchmarks.peers.roster import OURS, PEERS

RATE = next(each for each in WORKLOADS if each.name == "produce-1p-100b-acks-all-none")


def entry() -> dict[str, Any]:
    results = {
        "penstock": Measured([{"messages_per_s": 200.0, "broker_cpu_us_per_message": 1.5}, {"messages_per_s": 300.0}]),
        "kafka": Measured([{"messages_per_s": 100.0}, {"messages_per_s": 100.0}]),
        "redis": Measured(reason="it fell | over\nat once"),
    }
    return report.entry(RATE, Mode.DEFAULT, results, "penstock", {"commit": "abc"})


def test_an_entry_holds_every_round_the_spread_and_ratios_of_ours_to_each() -> None:
    found = entry()
    assert found["ratios"] == {"kafka": {"median": 2.5, "low": 2.0, "high": 3.0}}
    assert found["peers"]["penstock"]["summary"]["messages_per_s"] == {"median": 250.0, "low": 200.0, "high": 300.0}
    assert len(found["peers"]["kafka"]["rounds"]) == 2
    assert found["peers"]["redis"] == {"reason": "it fell | over\nat once"}


def test_the_page_shows_the_best_first_and_says_who_was_not_measured_and_why() -> None:
    peers = {"kafka": {"version": "Apache Kafka 4"}, "klite": {"reason": "go failed"}}
    limits = {"fsync": {"p99_ms": {"median": 2.0, "low": 1.0, "high": 3.0}}}
    text = report.page({"peers": peers, "workloads": {"produce, default": entry()}, "limits": limits})
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    best = next(index for index, row in enumerate(rows) if row.startswith("| penstock | 250 (200 to 300) | ████"))
    assert rows[best + 1].startswith("| kafka | 100 (100 to 100) | ")
    assert "| 2.50 (2.00 to 3.00) |" in rows[best + 1]
    assert any(row.startswith("| redis | not measured: it fell / over at once |") for row in rows)
    assert "| klite | not measured: go failed |" in rows
    assert "| fsync | p99 ms | 2.00 (1.00 to 3.00) |" in rows
    widths = {row.count("|") for row in rows[best : best + 3]}
    assert len(widths) == 1, "a reason broke the table"


def test_the_page_says_of_each_table_what_code_it_measured() -> None:
    text = report.page({"workloads": {"produce, default": entry()}})
    assert "Commit abc." in text.splitlines()


def test_the_matrix_of_produce_is_one_table() -> None:
    names = ["produce-12p-10b-acks-1-lz4, default", "produce-1p-1000b-acks-all-none, default"]
    text = report.page({"workloads": dict.fromkeys(names, entry())})
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### The targets",
        "### produce, every size, compression and number of partitions",
    ]
    lines = [line for line in text.splitlines() if "| kafka |" in line]
    assert lines == [
        f"| {label} | kafka | 250 (200 to 300) | 100 (100 to 100) | 2.50 (2.00 to 3.00) | 1.50 |  | abc |"
        for label in ("12p-10b-acks-1-lz4", "1p-1000b-acks-all-none")
    ]


def test_a_later_run_replaces_only_what_it_measured(tmp_path: Path) -> None:
    path = tmp_path / "results" / "beside.json"
    report.write(path, report.merged(path, {"workloads": {"a": 1, "b": 1}, "peers": {"kafka": {"version": "1"}}}))
    report.write(path, report.merged(path, {"workloads": {"b": 2}}))
    assert json.loads(path.read_text()) == {
        "peers": {"kafka": {"version": "1"}},
        "workloads": {"a": 1, "b": 2},
        "limits": {},
    }


def test_the_table_of_workloads_names_each_once_and_holds_what_the_targets_need() -> None:
    assert len({each.name for each in WORKLOADS}) == len(WORKLOADS)
    produced = [each.job for each in WORKLOADS if each.family == "produce"]
    combinations = {(job.partitions, job.size, job.acks, job.compression) for job in produced}
    assert len(combinations) == len(produced) == 2 * 4 * 2 * 3
    assert {each.job.rate for each in WORKLOADS if each.family == "latency"} == {1_000, 10_000, 50_000}
    core = {each.family for each in chosen([], core=True)}
    assert core == {"produce", "small", "latency", "read", "cluster", "start", "memory", "partitions"}


def test_a_limit_that_a_workload_is_held_against_is_there_and_gives_its_figure() -> None:
    held = [(each, limits.beside(each.limits, is_quick=True)) for each in WORKLOADS if each.limits]
    assert {each.name for each, _ in held} >= {"catch-up-cached-raw", "latency-produce-10k"}
    for each, beside in held:
        if "null-broker" not in each.limits[0]:  # which starts a server and librdkafka
            assert all(measure()[each.metric] > 0 for measure in beside.values())


def test_a_target_is_held_against_a_limit_round_by_round() -> None:
    read = {"penstock": [100.0, 300.0, 50.0], "limit: loopback-tcp": [400.0, 400.0, 100.0]}
    late = {"penstock": [3.0, 9.0, 4.0], "limit: fsync-10k": [1.0, 8.0, 0.5]}

    def measured(values: dict[str, list[float]], metric: str) -> dict[str, Any]:
        return {"peers": {name: {"rounds": [{metric: one} for one in each]} for name, each in values.items()}}

    workloads = {
        "catch-up-cached-raw, default": measured(read, "mb_per_s"),
        "latency-produce-10k, default": measured(late, "p99_ms"),
    }
    found = {(name, against): reached for name, against, _, reached, _ in targets.rows({"workloads": workloads})}
    assert found["the same, without a client's work", "loopback TCP"] == "0.50"
    assert found["the same, ms above the disk's own P99 at that rate", "fsync"] == "2.00"


def test_a_limit_that_cannot_be_measured_says_why_and_takes_nobody_with_it() -> None:
    asked: list[str] = []

    def fails() -> dict[str, float]:
        asked.append("failing")
        raise OSError("no room")

    results = {"penstock": Measured([{"mb_per_s": 1.0}])}
    for _ in range(2):
        _measure_limits({"limit: failing": fails, "limit: sound": lambda: {"mb_per_s": 5.0}}, results)
    assert (results["limit: failing"].rounds, results["limit: failing"].reason) == ([], "no room")
    assert asked == ["failing"], "it is out for the rest of the workload"
    assert results["limit: sound"].rounds == [{"mb_per_s": 5.0}] * 2
    assert results["penstock"].rounds == [{"mb_per_s": 1.0}]


def test_a_quick_run_is_small_whatever_the_workload() -> None:
    for each in WORKLOADS:
        quick = each.quickly()
        assert quick.job.count <= max(20, each.job.count // 100)
        assert quick.fill <= max(0, each.fill // 100)
        assert each.kind is Kind.ALONE or quick.job.count * quick.job.size <= 5_000_000


def test_workloads_are_chosen_by_family_or_name_and_an_unknown_one_says_what_there_is() -> None:
    assert {each.family for each in chosen(["small", "start"], core=False)} == {"small", "start"}
    assert [each.name for each in chosen([RATE.name], core=False)] == [RATE.name]
    with pytest.raises(LookupError, match=f"no workload speed; there are the families {', '.join(FAMILIES)}"):
        chosen(["speed"], core=False)


def test_a_peer_that_lacks_what_a_workload_needs_says_so_in_words() -> None:
    assert lacks(PEERS["redis"], frozenset({Ability.TRANSACTIONS})) == "it has no transactions in the sense of Kafka's"
    assert lacks(OURS, frozenset(Ability)) is None
