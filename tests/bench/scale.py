"""What grows with the turns of a day, and what breaks first: ``python -m tests.bench.scale`` writes docs/scale.md.

Two views of the same deployment. Arithmetic: the counts of ``make cost`` (``cost.json``) times arrivals, against the quotas of a
region. A simulation: turns arrive at random over the peak hour, hold environments of Lambda, and are refused or wait where there is no
room; it is seeded, so that the document can be made again and compared.
"""

import argparse
import heapq
import math
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moorage import limits
from moorage.limits import SANDBOX_CPU_UNITS as CPU_UNITS

from infra.config import Config
from infra.prices import MICROVM_GB, PRICES
from tests.bench.cost import HOP_SECONDS, Turn, recorded

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
DAYS = (1_000, 100_000, 10_000_000)
PEAK = 4
"""The busiest hour has so many times the mean of the day."""

MIX = {
    "1 model call, foreground": 0.70,
    "10 model calls and 9 shell calls, foreground": 0.20,
    "10 model calls and 9 shell calls, background": 0.10,
}
REUSE = 3
"""Turns that share a container: a conversation."""

COLD_SECONDS = 1.5
KEPT_SECONDS = 360
"""An environment's cold start, and how long an idle one stays: both observed by others, neither promised by AWS."""

ACCEPT_SECONDS = 1.0
"""What a request for a background response holds its environment for."""

SANDBOX_START_SECONDS = 30
FARGATE_STARTS = 20
SEED = 20_261_122


@dataclass(frozen=True)
class Quota:
    """Of one region of one account, by default."""

    name: str
    amount: float
    unit: str
    remedy: str


ADDRESSES_OF_ZONES = 3 * 4_091
ADVICE_ON_ADDRESSES = f"three zones have {ADDRESSES_OF_ZONES:,}; then share containers, or add a second cell"
HALF_UNITS = 156 / 4096
"""Of read capacity for a response that runs: its entry in the index has 156 bytes, and half a unit reads 4 KB (DynamoDB developer
guide, "Read consistency")."""

QUOTAS = (
    Quota("Lambda: environments at once", 1_000, "", "raise (Service Quotas); a new account has 10"),
    Quota("Step Functions: starts", 300, "/s", "raise; then add a second cell"),
    Quota("Step Functions: transitions", 5_000, "/s", "raise; 800 in small regions"),
    Quota("DynamoDB: one partition of the index (INFLIGHT)", 1_000, " writes/s", "shard the key by a digit of the response's id"),
    Quota(
        "DynamoDB: the same partition, read",
        3_000,
        " reads/s",
        "shard the key; each create reads its tenant's part, and the reaper reads all",
    ),
    Quota("DynamoDB: the table, on demand", 40_000, " writes/s", "raise; the table itself grows to twice its last peak"),
    Quota("ECS: RunTask on Fargate", FARGATE_STARTS, "/s", "raise; share containers between conversations; keep a warm pool"),
    Quota("Fargate: vCPUs at once", 6, "", "raise; a new account reaches this quota first"),
    Quota("Addresses of a sandbox subnet (/20)", 4_091, " sandboxes", ADVICE_ON_ADDRESSES),
    Quota("Network interfaces of the region", 5_000, "", "raise; each sandbox has one interface"),
    Quota("Addresses in use in one VPC (NAU)", 64_000, "", "raise to 256,000; then add a second cell"),
    Quota("Parameter Store: reads of one model key", 40, "/s", "raise to 10,000 (higher throughput, billed)"),
    Quota("API Gateway: requests", 10_000, "/s", "raise; the setting `requests_per_second` limits requests earlier"),
    Quota("EventBridge: invocations", 18_750, "/s", "raise"),
)


EVENTS_OF_A_CALL = 200
EVENTS_OF_A_COMMAND = 20
"""Each event is a message on a WebSocket: of 400 tokens that a model says in pieces of two, and of a command that prints some lines."""

SOCKET_IDLE_SECONDS = 600
DOLLARS_A_MESSAGE, DOLLARS_A_CONNECTED_MINUTE = 1.00e-6, 0.25e-6
"""us-east-1, as the gateway's price page has them."""

SOCKET_QUOTAS = (
    Quota("New connections", 500, "/s", "raise; a client keeps one connection for a conversation, and reconnects after a close"),
    Quota(
        "Connections at once",
        3_600_000,
        "",
        "not a quota of its own: 500 new connections a second, each for two hours, reach this number",
    ),
    Quota("Requests, messages and events of all APIs", 10_000, "/s", "raise, or stream over HTTP: there an answer is one request"),
)
"""Of API Gateway, for WebSocket APIs (its developer guide, "Quotas for configuring and running a WebSocket API"). What is sent on
connections counts with everybody's requests (account-level throttling)."""

FARGATES = {"ECS: RunTask on Fargate", "Fargate: vCPUs at once", "Network interfaces of the region"}
"""Quotas that Fargate's tasks use."""

MICROVM_STARTS = 5
MICROVM_QUOTAS = (
    Quota("RunMicrovm", MICROVM_STARTS, "/s", "raise; share containers between conversations"),
    Quota("ResumeMicrovm, if the endpoint's own waking counts", 5, "/s", "raise; nothing published says whether it counts"),
    Quota("Tokens for endpoints, at most", 50, "/s", "raise; a process keeps its token for fifty minutes"),
    Quota("Memory of MicroVMs, asleep or awake", 400, " GB", "raise; four regions have 1,024 GB"),
)
"""Of Lambda, for MicroVMs (its developer guide, "Lambda quotas")."""


LARGE = 0.1
"""Of the containers, those with ``16g``, on Fargate beside MicroVMs of ``1g``."""

BOTH_QUOTAS = tuple(
    quota for quota in (*MICROVM_QUOTAS, *QUOTAS) if quota.name in {"RunMicrovm", "Memory of MicroVMs, asleep or awake"} | FARGATES
)


def turns() -> dict[str, Turn]:
    return {turn.title: turn for turn in recorded() if turn.title in MIX}


def environment_seconds(turn: Turn) -> float:
    """Seconds of Lambda environments that a turn holds, over all functions."""
    if not turn.transitions:
        return turn.wall_seconds
    steps = turn.model_calls * (turn.model_seconds + HOP_SECONDS) + turn.commands * (turn.command_seconds + HOP_SECONDS)
    # The stream is held beside the steps; the first model step of a foreground turn runs in it.
    return steps + (ACCEPT_SECONDS if turn.is_background else turn.wall_seconds - turn.model_seconds)


def demand(turns_a_day: int, peak: float = PEAK) -> dict[str, float]:
    """What each quota is asked for at the busiest time of the day."""
    arrivals = turns_a_day / 86_400 * peak
    parts = [(share, turns()[title]) for title, share in MIX.items()]

    def mean(of: list[tuple[float, float]]) -> float:
        return arrivals * sum(share * amount for share, amount in of)

    looping = [(share, float(bool(turn.transitions))) for share, turn in parts]
    starts = mean([(share, float(turn.commands > 0) / REUSE) for share, turn in parts])
    alive = starts * (limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60 + REUSE * max(turn.wall_seconds for _, turn in parts))
    environments = mean([(share, environment_seconds(turn)) for share, turn in parts])
    running = mean([(share, turn.wall_seconds * bool(turn.transitions)) for share, turn in parts])
    most = limits.RUNNING_RESPONSES_MAX
    return {
        "Lambda: environments at once": environments,
        "Step Functions: starts": mean(looping),
        "Step Functions: transitions": mean([(share, float(turn.transitions_billed)) for share, turn in parts]),
        "DynamoDB: one partition of the index (INFLIGHT)": 2 * mean(looping),
        # Of a tenant with as many as it may have, the most; and the reaper looks once a minute.
        "DynamoDB: the same partition, read": mean(looping) * math.ceil(most * HALF_UNITS) / 2 + running * HALF_UNITS / 2 / 60,
        "DynamoDB: the table, on demand": mean([(share, turn.counts.write_units) for share, turn in parts]),
        "ECS: RunTask on Fargate": starts,
        "Fargate: vCPUs at once": alive * CPU_UNITS["1g"] / 1024,
        "Addresses of a sandbox subnet (/20)": alive,
        "Network interfaces of the region": alive,
        "Addresses in use in one VPC (NAU)": alive,
        "Parameter Store: reads of one model key": environments / limits.SECRET_SECONDS_MAX,
        "API Gateway: requests": arrivals * 1.5,
        "EventBridge: invocations": 2 * starts,
    }


def events(turn: Turn) -> float:
    return turn.model_calls * EVENTS_OF_A_CALL + turn.commands * EVENTS_OF_A_COMMAND


def connected_seconds() -> float:
    """Of one connection: the turns of a conversation, and the silence after each until the next, or until the gateway closes it."""
    wall = sum(share * turns()[title].wall_seconds for title, share in MIX.items())
    return min(REUSE * (wall + SOCKET_IDLE_SECONDS), limits.WEBSOCKET_SECONDS_MAX)


def socket_demand(turns_a_day: int, peak: float = PEAK) -> dict[str, float]:
    """The same for the WebSocket API, if every turn came by it: a frame that asks, a connection for each conversation."""
    arrivals = turns_a_day / 86_400 * peak
    opened = arrivals / REUSE
    said = sum(share * events(turns()[title]) for title, share in MIX.items())
    return {
        "New connections": opened,
        "Connections at once": opened * connected_seconds(),
        "Requests, messages and events of all APIs": opened + arrivals * (1 + said),
    }


def microvm_demand(turns_a_day: int, peak: float = PEAK) -> dict[str, float]:
    """The same for sandboxes in MicroVMs: each turn but a container's first one wakes it, and each command asks for a token."""
    asked, arrivals = demand(turns_a_day, peak), turns_a_day / 86_400 * peak
    starts = asked["ECS: RunTask on Fargate"]
    return {
        "RunMicrovm": starts,
        "ResumeMicrovm, if the endpoint's own waking counts": starts * (REUSE - 1),
        "Tokens for endpoints, at most": arrivals * sum(share * turns()[title].commands for title, share in MIX.items()),
        "Memory of MicroVMs, asleep or awake": asked["Network interfaces of the region"] * MICROVM_GB,
    }


def both_demand(turns_a_day: int, peak: float = PEAK) -> dict[str, float]:
    """The same for MicroVMs of ``1g`` and tasks of ``16g`` side by side: each quota is asked for its kind's share of the containers."""
    tasks, machines = demand(turns_a_day, peak), microvm_demand(turns_a_day, peak)
    larger = {"Fargate: vCPUs at once": CPU_UNITS["16g"] / CPU_UNITS["1g"]}
    asked = {quota.name for quota in BOTH_QUOTAS}
    return {name: (1 - LARGE) * amount for name, amount in machines.items() if name in asked} | {
        name: LARGE * larger.get(name, 1) * tasks[name] for name in FARGATES
    }


def socket_dollars(turns_a_day: int) -> float:
    """A day, beyond what turns cost over HTTP."""
    asked = socket_demand(turns_a_day, peak=1)
    minutes = asked["Connections at once"] * 24 * 60
    return asked["Requests, messages and events of all APIs"] * 86_400 * DOLLARS_A_MESSAGE + minutes * DOLLARS_A_CONNECTED_MINUTE


def dollars(turns_a_day: int) -> float:
    """A day, without model tokens; sandboxes shared by ``REUSE`` turns."""
    found = turns()
    prices, config = PRICES["us-east-1"], Config()
    each = {
        title: sum(price / (REUSE if part == "sandbox" else 1) for part, price in turn.dollars(prices, config).items())
        for title, turn in found.items()
    }
    return turns_a_day * sum(share * each[title] for title, share in MIX.items())


# --- The simulation ---


@dataclass
class Fleet:
    """Environments that functions share, each of which serves one of them."""

    room: int
    busy: int = 0
    idle: defaultdict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))
    """Of each function, since when each idle one is, the longest first."""
    cold: int = 0
    most: int = 0

    def take(self, function: str, now: float) -> float | None:
        """The delay until it works; None if there is no room."""
        idle = self.idle[function]
        while idle and now - idle[0] >= KEPT_SECONDS:
            idle.popleft()
        if self.busy >= self.room:
            return None
        self.busy += 1
        self.most = max(self.most, self.busy)
        if idle:
            idle.pop()
            return 0.0
        self.cold += 1
        return COLD_SECONDS

    def give_back(self, function: str, now: float) -> None:
        self.busy -= 1
        self.idle[function].append(now)


@dataclass
class Outcome:
    """Of one simulated hour."""

    arrived: int = 0
    refused: list[int] = field(default_factory=list)
    """By the gateway, for want of an environment for a stream: which turns, in the order of their coming."""
    throttled: int = 0
    """Steps that waited for an environment."""
    waited: list[float] = field(default_factory=list)
    """Seconds each turn took beyond its work."""
    streams: Fleet = field(default_factory=lambda: Fleet(0))
    steps: Fleet = field(default_factory=lambda: Fleet(0))

    @property
    def waited_p99(self) -> float:
        return sorted(self.waited)[int(len(self.waited) * 0.99)] if self.waited else 0.0


def simulate(
    arrivals_a_second: float,
    *,
    concurrency: int,
    streams_percent: int,
    seconds: float = 1200,
    mix: Mapping[str, float] = MIX,
    seed: int = SEED,
) -> Outcome:
    """Twenty minutes of arrivals, and until the last one has ended."""
    chance = random.Random(seed)
    return forecast(arrivals(arrivals_a_second, seconds, mix, chance), concurrency, streams_percent, chance)


def arrivals(a_second: float, seconds: float, mix: Mapping[str, float], chance: random.Random) -> list[tuple[float, Turn]]:
    """Who comes when, at random."""
    came: list[tuple[float, Turn]] = []
    at, found = 0.0, turns()
    while (at := at + chance.expovariate(a_second)) < seconds:
        came.append((at, found[chance.choices(list(mix), weights=list(mix.values()))[0]]))
    return came


def forecast(came: Sequence[tuple[float, Turn]], concurrency: int, streams_percent: int, chance: random.Random) -> Outcome:
    """What becomes of those who come, until the last one has ended.

    With ``streams_percent`` 0, streams and steps take from the same environments."""
    room = concurrency * streams_percent // 100
    steps = Fleet(concurrency - room)
    outcome = Outcome(streams=Fleet(room) if room else steps, steps=steps)
    events = [(at, number, _turn(number, turn, outcome, chance, lambda: now)) for number, (at, turn) in enumerate(came)]
    heapq.heapify(events)
    now = 0.0
    while events:
        now, order, turn = heapq.heappop(events)
        pause = next(turn, None)
        if pause is not None:
            heapq.heappush(events, (now + pause, order, turn))
    return outcome


def _turn(number: int, turn: Turn, outcome: Outcome, chance: random.Random, clock: Callable[[], float]) -> Iterator[float]:
    """One turn as pauses until its next event."""
    outcome.arrived += 1
    began = clock()
    delay = outcome.streams.take("Responses", began)
    if delay is None:
        outcome.refused.append(number)
        return
    yield delay
    work = 0.0
    if turn.is_background:
        yield ACCEPT_SECONDS
        outcome.streams.give_back("Responses", clock())
        work += ACCEPT_SECONDS
    durations = [turn.model_seconds] + [turn.command_seconds, turn.model_seconds] * turn.commands
    for index, seconds in enumerate(durations):
        work += seconds
        function = "ToolStep" if index % 2 else "ModelStep"
        if index == 0 and not turn.is_background:
            yield seconds
            continue
        for attempt in range(60):
            waiting = outcome.steps.take(function, clock())
            if waiting is not None:
                break
            outcome.throttled += 1
            yield chance.uniform(0, min(2.0**attempt, 30))
        else:
            break
        yield waiting + seconds
        outcome.steps.give_back(function, clock())
    if not turn.is_background:
        outcome.streams.give_back("Responses", clock())
    outcome.waited.append(clock() - began - work)


# --- The document ---


def document() -> str:
    lines = [HEAD.format(mix=", ".join(f"{share:.0%} {title}" for title, share in MIX.items()), peak=PEAK, reuse=REUSE)]
    days = " | ".join(f"{day:,} a day" for day in DAYS)
    lines += [f"| quota | default | {days} | what to do |", "|---|---|" + "---|" * (len(DAYS) + 1)]
    asked = {day: demand(day) for day in DAYS}
    for quota in QUOTAS:
        cells = [_cell(asked[day][quota.name], quota.amount) for day in DAYS]
        lines.append(f"| {quota.name} | {quota.amount:,.0f}{quota.unit} | {' | '.join(cells)} | {quota.remedy} |")
    lines.append("| dollars a day, without tokens | | " + " | ".join(f"{dollars(day):,.0f}" for day in DAYS) + " | |")
    for day in DAYS:
        lines.append("\n" + _verdict(day, asked[day]))
    lines += [MICROVMS, f"| quota | default | {days} | what to do |", "|---|---|" + "---|" * (len(DAYS) + 1)]
    vms = {day: microvm_demand(day) for day in DAYS}
    for quota in MICROVM_QUOTAS:
        cells = [_cell(vms[day][quota.name], quota.amount) for day in DAYS]
        lines.append(f"| {quota.name} | {quota.amount:,.0f}{quota.unit} | {' | '.join(cells)} | {quota.remedy} |")
    lines += [BOTH.format(large=LARGE), f"| quota | default | {days} | what to do |", "|---|---|" + "---|" * (len(DAYS) + 1)]
    both = {day: both_demand(day) for day in DAYS}
    for quota in BOTH_QUOTAS:
        cells = [_cell(both[day][quota.name], quota.amount) for day in DAYS]
        lines.append(f"| {quota.name} | {quota.amount:,.0f}{quota.unit} | {' | '.join(cells)} | {quota.remedy} |")
    lines += [SOCKETS.format(call=EVENTS_OF_A_CALL, command=EVENTS_OF_A_COMMAND, minutes=connected_seconds() / 60)]
    lines += [f"| quota | default | {days} | what to do |", "|---|---|" + "---|" * (len(DAYS) + 1)]
    talk = {day: socket_demand(day) for day in DAYS}
    for quota in SOCKET_QUOTAS:
        cells = [_cell(talk[day][quota.name], quota.amount) for day in DAYS]
        lines.append(f"| {quota.name} | {quota.amount:,.0f}{quota.unit} | {' | '.join(cells)} | {quota.remedy} |")
    lines.append("| dollars a day, beside those above | | " + " | ".join(f"{socket_dollars(day):,.2f}" for day in DAYS) + " | |")
    lines += [SIMULATION.format(cold=COLD_SECONDS, kept=KEPT_SECONDS // 60, seed=SEED)]
    lines += [
        "| load | turns a day | concurrency | for streams | refused | steps throttled | cold starts | most at once | p99 of waiting |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for load, day, concurrency, percent in RUNS:
        made = simulate(day / 86_400 * PEAK, concurrency=concurrency, streams_percent=percent, mix=MIXES[load])
        cold = made.streams.cold + (made.steps.cold if percent else 0)
        most = made.streams.most + (made.steps.most if percent else 0)
        share = f"{percent} %" if percent else "none"
        counted = f"{len(made.refused) / made.arrived:.1%} | {made.throttled:,} | {cold:,} | {most:,} | {made.waited_p99:.1f} s"
        lines.append(f"| {load} | {day:,} | {concurrency:,} | {share} | {counted} |")
    return "\n".join(lines) + TAIL


RUNS = (
    ("mixed", 100_000, 1_000, 50),
    ("mixed", 360_000, 1_000, 0),
    ("mixed", 360_000, 1_000, 50),
    ("mixed", 360_000, 3_000, 50),
    ("agents", 172_800, 1_000, 0),
    ("agents", 172_800, 1_000, 50),
)
MIXES = {"mixed": MIX, "agents": {"10 model calls and 9 shell calls, foreground": 1.0}}

HEAD = """# Scale

`python -m tests.bench.scale` makes this page from the counts of `make cost` and AWS's published default quotas. The figures are
computed, and were not measured on AWS.

The mix is {mix}. The busiest hour has {peak} times the mean load of the day. {reuse} turns share a container.

## Use of each quota in the busiest hour

A bold figure exceeds the default quota.
"""

MICROVMS = """
## Sandboxes in Lambda MicroVMs

With `provisioner: lambda_microvm` ([Lambda MicroVMs](aws.md#lambda-microvms)) these quotas take the place of ECS's and
Fargate's, and of those of addresses and interfaces. All sandboxes are of `1g`, with half a GB each.
"""

BOTH = """
### Both by memory tier

With `provisioner: {{"1g": "lambda_microvm", "16g": "fargate"}}` ([both](aws.md#both-by-memory-tier)) each kind uses its own
quotas, for its share of the containers. Here {large:.0%} of them have `16g`. The other quotas of Fargate's network are asked for
the same share.
"""

SOCKETS = """
## If every turn came over WebSocket

These figures assume `websocket: true` ([WebSocket](aws.md#websocket)). A connection serves one conversation, and is open for
{minutes:.0f} minutes. The gateway closes a connection after 10 minutes of silence, and always after two hours. The API closes it after
one hour. A model call has {call} events, and a command has {command}. Each event is a message. While a turn runs, `SocketWork` holds an
environment, as the streaming function does above. A connection at rest holds no environment.
"""

SIMULATION = """
## The busiest time, simulated

Turns arrive at random for twenty minutes. A cold start takes {cold} s. Idle environments stay for {kept} minutes. A step without a
free environment waits as the state machine does, with full jitter. The seed is {seed}.

`tests/twin/test_forecast.py` compares this simulation with the loop itself. It plays bursts of the same turns with the state machine's
own definition and the steps' own code, on a simulated clock. Refusals, waits and cold starts match the forecast, turn by turn.
"""

TAIL = """

Agents are foreground turns with ten model calls. Without a share for steps, streams take the environments that the steps need. With a
share (`streams_percent`), the same amount of work is done. A turn that has begun goes on without a pause. A turn without room is
refused at once. If most turns are one model call, environments become free often enough for both. Close to the quota, a share then
makes steps wait that would find room otherwise. In this case `streams_percent: 0` is better, and a higher quota is best.

## Beyond one deployment

A cell is one deployment: two stacks, a table and quotas, in an account or a region of its own. Cells share no resources, so N cells
carry N times the table above. A tenant belongs to one cell. A router in front chooses the cell by the API key. Keys do not name a
cell, so the router keeps a map from a key's SHA-256 to a cell: a CloudFront key-value store, or DynamoDB behind a small function. Run
`moorage keys create` against the tenant's cell.

To move a tenant, its partitions and the objects under its prefixes would have to be exported. moorage has no such export, so place
each tenant with care. No record refers to another tenant's record. So data must be split only when one tenant is larger than a cell.

Before a second cell, take these steps in order:

1. Ask for more Lambda concurrency, Fargate vCPUs and network interfaces.
2. Use two or three availability zones. Three zones have addresses for 12,273 sandboxes.
3. Shard the two index partitions that every hand-over writes (`INFLIGHT`, `ALIVE`) by a digit of the id. The reaper then reads the
   shards in parallel.

One tenant's reads do not grow with other tenants. A create reads only its tenant's part of `INFLIGHT`. A start reads only its
tenant's sandboxes (`T#<tenant>#SANDBOXES`).

With the mix above, a cell serves about 1.7 million turns a day after these steps. Its sandboxes then fill the addresses of three zones.
Ten million turns need six cells, or fewer if more turns share a container.
"""


def _verdict(turns_a_day: int, asked: dict[str, float]) -> str:
    """One sentence about the quota with the largest share of use."""
    first = max(QUOTAS, key=lambda quota: asked[quota.name] / quota.amount)
    share = asked[first.name] / first.amount
    if share <= 1:
        return f"At {turns_a_day:,} turns a day no quota is exceeded. The highest use is {share:.0%} of **{first.name}**."
    return f"At {turns_a_day:,} turns a day **{first.name}** is exceeded most, by a factor of {share:,.0f}."


def _cell(asked: float, quota: float) -> str:
    shown = f"{asked:,.0f}" if asked >= 10 else f"{asked:.2g}"
    return f"**{shown}**" if asked > quota else shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="say whether the document is as it would be written")
    options = parser.parse_args()
    text = document()
    if options.check:
        raise SystemExit(0 if DOCUMENT.read_text() == text else "docs/scale.md is not what this program writes.")
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    main()
