"""This project beside its peers: the same work in one run, as one table of medians, minima and ratios.

    python tests/benchmarks/bench.py                      all of it, some fifteen minutes
    python tests/benchmarks/bench.py --quick              one short round of everything
    python tests/benchmarks/bench.py --only sagents_nb    without peers, and without installing them

The peers are installed, with pinned versions, in an environment of their own beside the repository (`.bench-venv`);
this project runs in the environment the script is started with. Every measurement is a fresh process, and the
contenders take turns, round by round, so that what the machine does meanwhile hits all alike. What is measured is CPU
time; a loop that is always the same runs before and after, and tells how much the machine itself wavered.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).parent / "peers" / "requirements.txt"
ENVIRONMENT = ROOT / ".bench-venv"

Statistic = Callable[[list[float]], float]


@dataclass(frozen=True)
class Contender:
    """A toolkit; `module` in `peers/` does the work, `imports` is what a user of it would write."""

    name: str
    module: str
    imports: str
    distribution: str


OURS = Contender(
    "sagents_nb",
    "sagents",
    "from sagents_nb import Agent, Message, Middleware, ScriptedModel, State, tool",
    "sagents-nb",
)
PEERS = (
    Contender(
        "langchain",
        "langchain",
        "from langchain.agents import create_agent; from langchain.agents.middleware import AgentMiddleware; "
        "from langchain.tools import tool; from langchain_core.messages import HumanMessage",
        "langchain",
    ),
    Contender(
        "deepagents",
        "deepagents",
        "from deepagents import create_deep_agent; from langchain.agents.middleware import AgentMiddleware; "
        "from langchain.tools import tool; from langchain_core.messages import HumanMessage",
        "deepagents",
    ),
    Contender(
        "pydantic-ai",
        "pydantic_ai",
        "from pydantic_ai import Agent; from pydantic_ai.capabilities import AbstractCapability; "
        "from pydantic_ai.models.function import FunctionModel",
        "pydantic-ai-slim",
    ),
    Contender(
        "openai-agents", "openai_agents", "from agents import Agent, RunHooks, Runner, function_tool", "openai-agents"
    ),
)
CONTENDERS = (OURS, *PEERS)

MEASURES = ("import", "build", "turn", "middlewares", "agent_hooks", "deltas", "agents", "conversation")
"""What is run, each in a process of its own."""


class Result(TypedDict):
    """What a process prints: samples by part, and the times of the loop that is always the same."""

    samples: dict[str, list[float]]
    calibration: list[float]


@dataclass
class Samples:
    """Everything measured of one contender: samples by measure and part, and the loop's times."""

    parts: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    calibration: list[float] = field(default_factory=list)

    def of(self, measure: str, part: str, statistic: Statistic) -> float:
        """The statistic of a part's samples."""
        return statistic(self.parts[measure, part])


@dataclass(frozen=True)
class Row:
    """A line of the table: what of the samples it shows, in which unit, with how many decimals."""

    label: str
    value: Callable[[Samples, Statistic], float]
    unit: str
    decimals: int = 2
    compare: bool = True


def _net(measure: str) -> Callable[[Samples, Statistic], float]:
    return lambda s, stat: (s.of(measure, "turn", stat) - s.of(measure, "alone", stat)) * 1e3


def _delta(s: Samples, stat: Statistic) -> float:
    return (s.of("deltas", "long", stat) - s.of("deltas", "short", stat) - s.of("deltas", "alone", stat)) / 2_000 * 1e6


def _plain(measure: str, part: str, scale: float) -> Callable[[Samples, Statistic], float]:
    return lambda s, stat: s.of(measure, part, stat) * scale


def _growth(s: Samples, stat: Statistic) -> float:
    return s.of("conversation", "last", stat) / s.of("conversation", "first", stat)


HOOKED = "one-tool turn, 5 no-op middlewares, 4 hooks each"
ROWS = {
    "import": Row("import", _plain("import", "cpu", 1e3), "ms", 1),
    "memory": Row("import, memory added", _plain("import", "memory", 1e-6), "MB", 1),
    "modules": Row("import, modules loaded", _plain("import", "modules", 1), "", 0),
    "build": Row("build an agent with one tool", _plain("build", "build", 1e3), "ms", 3),
    "turn": Row("one-tool turn", _net("turn"), "ms", 3),
    "middlewares": Row("one-tool turn, 5 no-op middlewares, 2 hooks each", _net("middlewares"), "ms", 3),
    "agent_hooks": Row(HOOKED, _net("agent_hooks"), "ms", 3),
    "delta": Row("one of 2,000 streamed deltas", _delta, "µs", 2),
    "agents": Row("500 agents at once, model sleeps 2 × 50 ms", _plain("agents", "cpu", 1), "s", 3),
    "wall": Row("the same, wall time", _plain("agents", "wall", 1), "s", 3),
    "crowd": Row("the same, memory added", _plain("agents", "memory", 1e-6), "MB", 1),
    "first": Row("200 turns in one conversation, turns 1 to 20", _plain("conversation", "first", 1e3), "ms", 3),
    "last": Row("the same, turns 181 to 200", _plain("conversation", "last", 1e3), "ms", 3),
    "growth": Row("the same, last over first", _growth, "×", 2, compare=False),
}

NOTES = """\
What is compared
- CPU time of a fresh process per measurement, user and system, all threads; contenders take turns. "×" is how many
  times this project's cost a peer takes, of the same line. On a busy machine the minimum says more than the median.
- The turn: a question of 100 characters, the model asks for `lookup(item=7)`, an `async def` tool returns some 400
  characters, the model answers with some 400: two model calls. Each toolkit has a stateless fake model, a bare subclass
  of its own model class. What the fake model and the tool cost by themselves, awaited without the toolkit, is measured
  in the same process and taken off, in the lines of turns and deltas; the other lines are as they are.
- No-op middlewares are `async def` hooks before and after each model call (2), and before and after the run as well (4):
  Middleware here, AgentMiddleware (langchain, deepagents), a capability (pydantic-ai). openai-agents has nothing of the
  kind; there one RunHooks asks five objects, and can only look on. The hooks that really ran were counted.
- This project records every hook, model call, tool call and State in memory while it is measured. The peers' tracing is
  off; nobody persists anything. deepagents runs with its own default stack (files, sub-agents, summaries).
- Deltas: the difference between an answer of 2,001 pieces and one of one piece. Each toolkit in its cheapest way to see
  every piece: agent.stream() here, astream(stream_mode="messages"), run_streamed().stream_events(), and
  run_stream().stream_text(delta=True, debounce_by=None).
- 500 agents: each has an agent object of its own, built before the clock starts.
- 200 turns: the history goes back in as each toolkit returned it, 800 messages at the end; of twenty turns the median.
- Import: the names a first program needs, provider clients not among them; memory is what the peak grew by."""


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--only", nargs="+", choices=names, help="measure these only")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured (default: 5)")
    options = parser.parse_args()
    rounds, seconds = (1, 0.3) if options.quick else (options.rounds, 1.0)
    contenders = [contender for contender in CONTENDERS if not options.only or contender.name in options.only]
    if any(contender is not OURS for contender in contenders):
        install_peers()
    samples = measure(contenders, rounds, seconds)
    print(table(contenders, samples))
    print()
    print(targets(contenders, samples))
    print()
    print(machine(contenders, samples, rounds))
    print()
    print(NOTES)


def install_peers() -> None:
    """Make the environment of the peers, unless it is there and what the pins say."""
    wanted = f"# {sys.version}\n{REQUIREMENTS.read_text(encoding='utf-8')}"
    stamp = ENVIRONMENT / "installed.txt"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    say(f"installing the peers in {ENVIRONMENT.name}, once")
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    pip = [python_of(PEERS[0]), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)
    stamp.write_text(wanted, encoding="utf-8")


def python_of(contender: Contender) -> str:
    """The interpreter that a contender runs in."""
    if contender is OURS:
        return sys.executable
    return str(ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def measure(contenders: list[Contender], rounds: int, seconds: float) -> dict[str, Samples]:
    """Everything, round by round; who is first changes from round to round."""
    samples = {contender.name: Samples() for contender in contenders}
    for contender in contenders:
        run(contender, "import", seconds)  # the first import writes byte code, and is not counted
    for number in range(rounds):
        for name in MEASURES:
            say(f"round {number + 1} of {rounds}: {name}")
            start = number % len(contenders)
            for contender in contenders[start:] + contenders[:start]:
                result = run(contender, name, seconds)
                mine = samples[contender.name]
                mine.calibration += result["calibration"]
                for part, values in result["samples"].items():
                    mine.parts.setdefault((name, part), []).extend(values)
    say("")
    return samples


def run(contender: Contender, measure: str, seconds: float) -> Result:
    """One measurement in a process of its own.

    Raises:
        SystemExit: it failed; with its last words.
    """
    command = [python_of(contender), "-m"]
    if measure == "import":
        command += ["tests.benchmarks.peers.importing", contender.imports]
    else:
        command += ["tests.benchmarks.peers", contender.module, measure, str(seconds)]
    # Tracing would want the network; byte code must be there for imports; -P would hide the folder of the work.
    unwanted = ("LANGSMITH", "LANGCHAIN", "LOGFIRE", "OTEL", "PYTHONDONTWRITEBYTECODE", "PYTHONSAFEPATH")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}
    environment |= {"LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1", "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        sys.exit(f"{contender.name}, {measure} failed:\n{done.stderr[-3000:]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def table(contenders: list[Contender], samples: dict[str, Samples]) -> str:
    """The table, in Markdown: two lines per row, the median and the minimum."""
    lines = [["", "", *(contender.name for contender in contenders)]]
    for row in ROWS.values():
        for label, statistic, title in ((row.label, statistics.median, "median"), ("", min, "min")):
            values = [row.value(samples[contender.name], statistic) for contender in contenders]
            cells = []
            for contender, value in zip(contenders, values, strict=True):
                shown = f"{value:,.{row.decimals}f} {row.unit}".strip()
                if row.compare and contenders[0] is OURS and contender is not OURS and values[0] > 0:
                    shown += f" ({value / values[0]:,.1f}×)"
                cells.append(shown)
            lines.append([label, title, *cells])
    return markdown(lines)


def markdown(lines: list[list[str]]) -> str:
    """A Markdown table whose columns stand under each other; the first line is its head."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = []
    for number, line in enumerate(lines):
        cells = [
            text.ljust(width) if column < 2 else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        rows.append(f"| {' | '.join(cells)} |")
        if number == 0:
            rule = ["-" * width if column < 2 else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
            rows.append(f"| {' | '.join(rule)} |")
    return "\n".join(rows)


def targets(contenders: list[Contender], samples: dict[str, Samples]) -> str:
    """What was to be reached, and what was; judged by the minimum, since noise only ever adds."""
    if contenders[0] is not OURS:
        return "sagents_nb was not measured: no targets."
    mine = samples[OURS.name]
    lines = [["target", "", "median", "min"]]

    def judge(label: str, value: Callable[[Statistic], float], reached: Callable[[float], bool], form: str) -> None:
        median, least = value(statistics.median), value(min)
        lines.append([label, "reached" if reached(least) else "missed", form.format(median), form.format(least)])

    def own(row: Row) -> Callable[[Statistic], float]:
        return lambda statistic: row.value(mine, statistic)

    judge(f"{HOOKED}: under 0.3 ms", own(ROWS["agent_hooks"]), lambda value: value < 0.3, "{:.3f} ms")
    peers = [contender for contender in contenders if contender is not OURS]
    if peers:

        def lead(statistic: Statistic) -> float:
            row = ROWS["agent_hooks"]
            return min(row.value(samples[peer.name], statistic) for peer in peers) / row.value(mine, statistic)

        judge("the same: at least 8 times cheaper than the best peer", lead, lambda value: value >= 8, "{:.1f}×")
    judge("one streamed delta: under 5 µs", own(ROWS["delta"]), lambda value: value < 5, "{:.2f} µs")
    judge("500 agents: under 0.3 s of CPU", own(ROWS["agents"]), lambda value: value < 0.3, "{:.3f} s")
    judge("turn 200 over turn 1: flat, at most 1.2", own(ROWS["growth"]), lambda value: value <= 1.2, "{:.2f}×")
    return markdown(lines)


def machine(contenders: list[Contender], samples: dict[str, Samples], rounds: int) -> str:
    """What was compared on what, and how much the machine wavered."""
    lines = [f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"]
    for contender in contenders:
        wanted = [contender.distribution, "pydantic"]
        if contender.name in ("langchain", "deepagents"):
            wanted += ["langchain-core", "langgraph"]
        lines.append(f"{contender.name}: {', '.join(versions(contender, wanted))}")
    lines.append(f"{rounds} rounds; the same loop of plain Python beside every measurement, ms (min, median, max):")
    for contender in contenders:
        loop = samples[contender.name].calibration
        least, middle, most = (f"{value * 1e3:.2f}" for value in (min(loop), statistics.median(loop), max(loop)))
        lines.append(f"  {contender.name:14} {least}  {middle}  {most}")
    return "\n".join(lines)


def versions(contender: Contender, distributions: list[str]) -> list[str]:
    """Names and versions of distributions, as the contender's interpreter has them."""
    code = "import sys, importlib.metadata as m; print(*[f'{n} {m.version(n)}' for n in sys.argv[1:]], sep='\\n')"
    if contender is OURS:  # it need not be installed
        code = f"import sagents_nb; print('{OURS.distribution}', sagents_nb.__version__); {code}"
        distributions = distributions[1:]
    command = [python_of(contender), "-c", code, *distributions]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def say(text: str) -> None:
    """Progress, on stderr; only where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
