"""How much disk, network, processor, how many partitions and brokers a load needs, and which of them decides.

Called by cli.capacity. Plain functions of a demand, the machines and the measured numbers: nothing is asked or waited
for. Each figure says in one line how it came about.
Laws:
- More load, longer retention, more copies or more readers never need fewer brokers.
- The brokers are the most that any one limit asks for, and those to lose besides.
"""

import math
from dataclasses import dataclass

from penstock.capacity.amounts import render_amount
from penstock.capacity.measured import Numbers

# A disk is planned to be so full at most: segments go whole, and moving a partition needs room for it twice.
DISK_SHARE = 0.7
# A link and a broker are planned to be so busy at peak: above it, waiting grows faster than the load.
NETWORK_SHARE = 0.7
BROKER_SHARE = 0.6
# What a message has around it in a batch: lengths, its offset and its time.
FRAMING_BYTES = 10
# Readers at the end of the log are served from memory while they are no further behind than this.
PAGE_CACHE_S = 60
# The limit that is there before any load is.
COPIES = "copies"


@dataclass(frozen=True, slots=True)
class Demand:
    messages_per_s: float
    message_bytes: float
    retention_s: float
    replication_factor: int = 3
    # Consumer groups that each read everything.
    groups: int = 1
    peak: float = 2.0
    # 2 halves what is sent and kept.
    compression: float = 1.0
    growth_per_year: float = 0.0
    years: float = 0.0
    batch_bytes: float = 16_384
    # What one consumer can work through.
    consumer_bytes_per_s: float = 10e6
    # There for other reasons than throughput.
    partitions_min: int = 1
    connections: int = 100


@dataclass(frozen=True, slots=True)
class Machines:
    disk_bytes: float = 4e12
    network_bytes_per_s: float = 125e6
    # How long a killed broker may take to come back; its partitions decide.
    restart_s: float = 10.0
    # Brokers that may be lost without the rest being overloaded.
    spare: int = 1


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    how: str


@dataclass(frozen=True, slots=True)
class Need:
    """How many brokers one limit asks for."""

    limit: str
    brokers: int
    how: str


@dataclass(frozen=True, slots=True)
class Plan:
    figures: tuple[Figure, ...]
    needs: tuple[Need, ...]
    brokers: int
    partitions: int
    limited_by: str


@dataclass(frozen=True, slots=True)
class Load:
    """The demand at the end of its growth, in bytes as they are sent and kept."""

    average_bytes_per_s: float
    peak_messages_per_s: float
    peak_bytes_per_s: float
    # As consumers see them, decompressed.
    peak_plain_bytes_per_s: float
    peak_batches_per_s: float
    growth: float


def load_of(demand: Demand) -> Load:
    growth = (1 + demand.growth_per_year) ** demand.years
    messages = demand.messages_per_s * growth
    average = messages * (demand.message_bytes + FRAMING_BYTES) / demand.compression
    peak_messages = messages * demand.peak
    peak = average * demand.peak
    # A batch holds at least one message.
    batches = min(peak_messages, peak / demand.batch_bytes)
    return Load(average, peak_messages, peak, peak_messages * demand.message_bytes, batches, growth)


def cores_of(demand: Demand, load: Load, numbers: Numbers) -> float:
    """Processor time of all brokers together, for each second of the peak."""
    copies = demand.replication_factor - 1
    gigabytes = load.peak_bytes_per_s / 1e9
    # A batch with copies is answered when they have it; without, when it is on the disk.
    request_s = (numbers.request_cpu_us if copies else numbers.synced_request_cpu_us) / 1e6
    copy_s = (numbers.replicated_cpu_s_per_gb - numbers.write_cpu_s_per_gb) / max(1.0, numbers.replicated_copies - 1)
    # A copy is a request to its leader and a batch at its follower.
    written = load.peak_batches_per_s * request_s + gigabytes * numbers.write_cpu_s_per_gb
    copied = copies * (load.peak_batches_per_s * 2 * request_s + gigabytes * max(0.0, copy_s))
    # A reader at the end of the log asks for each batch anew.
    read = demand.groups * (load.peak_batches_per_s * request_s + gigabytes * numbers.read_cpu_s_per_gb)
    return written + copied + read


def plan(demand: Demand, machines: Machines, numbers: Numbers) -> Plan:
    load, copies, groups = load_of(demand), demand.replication_factor, demand.groups
    peak = load.peak_bytes_per_s
    storage = load.average_bytes_per_s * demand.retention_s * copies
    disk = storage / DISK_SHARE
    incoming, outgoing = peak * copies, peak * (copies - 1 + groups)
    cores = cores_of(demand, load, numbers)
    write = numbers.write_bytes_per_s if copies == 1 else numbers.write_bytes_per_s_replicated
    by_consumers = math.ceil(load.peak_plain_bytes_per_s / demand.consumer_bytes_per_s) if groups else 0
    by_writing = math.ceil(peak / (write * BROKER_SHARE))
    partitions = max(by_consumers, by_writing, demand.partitions_min)
    held = max(1, int((machines.restart_s - numbers.start_s) / numbers.start_after_kill_s_per_partition))

    def show(value: float, unit: str = "B/s") -> str:
        return render_amount(value, unit)

    needs = (
        Need(COPIES, copies, "every copy lies on a broker of its own"),
        Need(
            "disk",
            math.ceil(disk / machines.disk_bytes),
            f"{show(disk, 'B')} on disks of {show(machines.disk_bytes, 'B')}",
        ),
        Need(
            "network",
            math.ceil(max(incoming, outgoing) / (machines.network_bytes_per_s * NETWORK_SHARE)),
            f"the larger of {show(incoming)} in and {show(outgoing)} out, {NETWORK_SHARE:.0%} of "
            f"{show(machines.network_bytes_per_s)} each",
        ),
        Need(
            "CPU",
            math.ceil(cores / BROKER_SHARE),
            f"{cores:.2f} cores at peak; a broker uses one, {BROKER_SHARE:.0%} of it planned for",
        ),
        Need(
            "writing",
            math.ceil(incoming / (write * BROKER_SHARE)),
            f"{show(incoming)} with all copies; a broker was measured at {show(write)}, {BROKER_SHARE:.0%} planned for",
        ),
        Need(
            "reading",
            math.ceil(peak * groups / (numbers.read_bytes_per_s * BROKER_SHARE)),
            f"{show(peak * groups)} to {groups} groups; measured at {show(numbers.read_bytes_per_s)}, "
            f"{BROKER_SHARE:.0%} planned for",
        ),
        Need(
            "partitions",
            math.ceil(partitions * copies / held),
            f"{partitions * copies:,} with all copies; {held:,} come back within {machines.restart_s:g} s of a kill",
        ),
    )
    # The first of equals decides: where no limit asks for more brokers than there are copies, none limits.
    decisive = max(needs, key=lambda need: need.brokers)
    spare = machines.spare if copies > 1 else 0
    brokers = decisive.brokers + spare
    # Each broker leads as many as any other.
    even = math.ceil(partitions / brokers) * brokers
    each = even * copies / brokers
    memory = numbers.idle_bytes + each * numbers.bytes_per_partition + demand.connections * numbers.bytes_per_connection
    figures = (
        Figure("messages", load.peak_messages_per_s, "messages/s", _how_many(demand, load)),
        Figure(
            "bytes in",
            peak,
            "B/s",
            f"messages × ({show(demand.message_bytes, 'B')} + {FRAMING_BYTES} B around it) / compression "
            f"{demand.compression:g}",
        ),
        Figure(
            "storage",
            storage,
            "B",
            f"{show(load.average_bytes_per_s)} on average × {demand.retention_s / 86_400:g} days × {copies} copies",
        ),
        Figure("disk", disk, "B", f"storage / {DISK_SHARE:.0%}, so that no disk fills up"),
        Figure("network in", incoming, "B/s", f"bytes in × {copies} copies"),
        Figure("network out", outgoing, "B/s", f"bytes in × ({copies - 1} to other copies + {groups} to groups)"),
        Figure(
            "CPU",
            cores,
            "cores",
            f"{load.peak_batches_per_s:,.0f} batches of {show(demand.batch_bytes, 'B')} a second written, copied and "
            f"read; a request took {numbers.request_cpu_us:g} µs when measured",
        ),
        Figure(
            "partitions",
            even,
            "",
            f"the most of {by_consumers:,} for consumers of {show(demand.consumer_bytes_per_s)}, {by_writing:,} for "
            f"writing and {demand.partitions_min:,} asked for, rounded up to the same for each broker",
        ),
        Figure("consumers", by_consumers, "", f"in each group, {show(demand.consumer_bytes_per_s)} each"),
        Figure(
            "memory",
            memory,
            "B",
            f"each broker: {show(numbers.idle_bytes, 'B')} idle, {each:,.0f} partitions, "
            f"{demand.connections:,} connections",
        ),
        Figure(
            "page cache",
            incoming / brokers * PAGE_CACHE_S,
            "B",
            f"each broker: {PAGE_CACHE_S} s of what it writes, so that readers at the end need no disk",
        ),
        Figure("brokers", brokers, "", f"{decisive.brokers:,} for {decisive.limit}, and {spare} to lose"),
    )
    return Plan(figures, needs, brokers, even, decisive.limit)


def _how_many(demand: Demand, load: Load) -> str:
    grown = f" × {load.growth:.2f} grown in {demand.years:g} years" if demand.years and demand.growth_per_year else ""
    return f"at peak: {render_amount(demand.messages_per_s, 'messages/s')} on average{grown} × peak {demand.peak:g}"
