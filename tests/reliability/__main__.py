"""Kill tests and process tests of any duration; each prints its results as a line of JSON.

python -m tests.reliability kills --kills 500 --seed 1
python -m tests.reliability processes --processes 32 --commits 100 --store local --format delta
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.reliability.kills import run_kills
from tests.reliability.processes import IMPLEMENTATIONS, BrokenError, run_processes
from tests.reliability.victims import MIXES
from tests.s3_server import s3_server
from trilake.storage import open_store


def kills(given: argparse.Namespace) -> None:
    """Run kill tests; tables are kept if a promise is broken."""
    folder = Path(tempfile.mkdtemp(prefix="trilake-kills-"))
    started = time.monotonic()
    result = run_kills(folder, given.kills, given.seed, tuple(given.mix or MIXES))
    seconds = round(time.monotonic() - started, 1)
    print(json.dumps({"seed": given.seed, "seconds": seconds, **result.to_dict()}), flush=True)
    shutil.rmtree(folder)


def processes(given: argparse.Namespace) -> None:
    """Run process tests for all formats on all stores; the table is kept if a promise is broken."""
    for store in given.store or ("local", "s3"):
        for format in given.format or IMPLEMENTATIONS:
            folder, much = Path(tempfile.mkdtemp(prefix="trilake-processes-")), (given.processes, given.commits)
            if store == "local":
                seen = run_processes(str(folder / "t"), {}, format, *much, given.seed, folder)
            else:
                with s3_server() as server:
                    uri = f"s3://lake/processes-{format}-{os.getpid()}"
                    try:
                        seen = run_processes(uri, server.options, format, *much, given.seed, folder)
                    except BrokenError:
                        copy_table(uri, server.options, folder / "t")
                        raise
            print(json.dumps(seen), flush=True)
            shutil.rmtree(folder)


def copy_table(uri: str, options: Mapping[str, str], place: Path) -> None:
    """Copy a table from the emulator, which ends with this process."""
    store = open_store(uri, dict(options))
    for meta in store.list():
        path = place / meta.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.read(meta.key).to_pybytes())


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kills", "processes"])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--mix", choices=list(MIXES), action="append", help="kills: one of the mixes; all by default")
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--commits", type=int, default=100, help="operations of each process")
    parser.add_argument("--format", choices=list(IMPLEMENTATIONS), action="append")
    parser.add_argument("--store", choices=["local", "s3"], action="append")
    given = parser.parse_args()
    {"kills": kills, "processes": processes}[given.what](given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
