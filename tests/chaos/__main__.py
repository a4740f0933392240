"""Chaos for as long as asked, round after round, until a promise breaks.

With `--record`, which `./dev soak` gives, the run is written to bench/results after every round, so
that one that is cut short is kept too.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from msgspec import json

from bench.harness import RESULTS, write_json
from tests.chaos.record import Record
from tests.chaos.running import ChaosRun, Report

ROUND_SECONDS = 120


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2, help="how long (default: 2)")
    parser.add_argument("--seed", type=int, help="begin with this seed instead of a random one")
    parser.add_argument("--store", choices=["both", "postgresql", "sqlite"], default="both")
    parser.add_argument("--keep", action="store_true", help="keep the logs of good rounds too")
    parser.add_argument("--record", action="store_true", help="write the run to bench/results")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    kinds = ["postgresql", "sqlite"] if arguments.store == "both" else [arguments.store]
    end = time.monotonic() + arguments.minutes * 60
    record = Record(seed, arguments.minutes) if arguments.record else None
    rounds = 0
    while rounds < len(kinds) or time.monotonic() < end:
        kind = kinds[rounds % len(kinds)]
        rest = end - time.monotonic()
        # The last rounds of each kind share what is left, PostgreSQL with the larger part.
        share = 1.0 if len(kinds) == 1 else 0.7 if kind == "postgresql" else 1.0
        seconds = min(ROUND_SECONDS, max(20.0, rest * share))
        report = _run_round(kind, seed + rounds, seconds, arguments.keep)
        if record:
            record.add(kind, report)
            write_json("soak", record.as_json(), RESULTS / record.file_name)
        if report.violations:
            return 1
        rounds += 1
    if record:
        sys.stdout.write(f"written to bench/results/{record.file_name}\n")
    return 0


def _run_round(kind: str, seed: int, seconds: float, keep: bool) -> Report:
    directory = Path(tempfile.mkdtemp(prefix="monarq-chaos-"))
    directory.chmod(0o711)
    sys.stdout.write(f"{kind}, seed {seed}, {seconds:.0f} s of faults ...\n")
    sys.stdout.flush()
    run = ChaosRun(directory, is_postgres=kind == "postgresql", seed=seed)
    report = asyncio.run(run.run(seconds))
    _print(report)
    if report.violations or keep:
        sys.stdout.write(f"the logs are in {directory}\n")
    else:
        shutil.rmtree(directory)
    return report


def _print(report: Report) -> None:
    shown = {
        name: value
        for name, value in json.decode(json.encode(report)).items()
        if name not in ("violations", "brokers")
    }
    sys.stdout.write(json.format(json.encode(shown), indent=2).decode() + "\n")
    for violation in report.violations[:50]:
        sys.stdout.write(f"BROKEN  {violation}\n")
    verdict = f"{len(report.violations)} broken" if report.violations else "all promises kept"
    sys.stdout.write(f"{verdict}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
