"""A process that runs streaming queries until it is killed; see test_stream_kill.py.

``python stream_victim.py <folder> <files a batch> [format]``: source -> middle by ``format(...)``, and, for Delta,
middle -> last by ``trilake.write_stream``.  It says ``ready`` when Spark is up, waits for a line on its input, and says
``done`` when nothing is left to read.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trilake
from trilake.spark.session import local_session


def main(folder: Path, files: str, format: str) -> None:
    spark = local_session("victim", memory="512m", **{"spark.python.worker.faulthandler.enabled": False})
    trilake.register(spark)
    print("ready", flush=True)
    sys.stdin.readline()
    source = spark.readStream.format(format).option("maxFilesPerTrigger", files).load(str(folder / "source"))
    first = (
        source.writeStream.format(format)
        .option("checkpointLocation", str(folder / "checkpoint-middle"))
        .trigger(availableNow=True)
        .start(str(folder / "middle"))
    )
    if format == "delta":
        middle = spark.readStream.format("delta").option("maxFilesPerTrigger", files).load(str(folder / "middle"))
        where = {"checkpoint": folder / "checkpoint-last", "available_now": True}
        # What the first query adds meanwhile is read by a later run of the second.
        trilake.write_stream(middle, folder / "last", **where).awaitTermination()
        first.awaitTermination()
        trilake.write_stream(middle, folder / "last", **where).awaitTermination()
    first.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "delta")
