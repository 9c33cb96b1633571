"""A process that runs a streaming query until it is killed; see test_stream_kill.py.

It says ``ready`` when Spark is up, and waits for a line such as ``middle,last 1 driver``: hops, files a batch, and
where batches of ``format("delta")`` are written: on the ``driver``, as after ``register``, or by the Python
sink in ``tasks``.  The hop ``middle`` is source -> middle by ``format("delta")``, ``last`` is middle -> last by
``trilake.write_stream``.  It runs the hops in order, each until the source is drained, and says ``done``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trilake
from trilake.spark.delta import native_batch
from trilake.spark.patches.formats import sources
from trilake.spark.session.local import local_session
from trilake.spark.session.sources.python_source import register_sources


def main(folder: Path) -> None:
    spark = local_session("victim", cores=1, memory="512m")
    print("ready", flush=True)
    hops, files, where = sys.stdin.readline().split()
    if where == "driver":
        trilake.register(spark)
        native_batch.SMALL = 0  # small batches
    else:
        register_sources(spark, sources())
    for hop in hops.split(","):
        came_from = folder / ("source" if hop == "middle" else "middle")
        rows = spark.readStream.format("delta").option("maxFilesPerTrigger", files).load(str(came_from))
        checkpoint = folder / f"checkpoint-{hop}"
        if hop == "middle":
            writer = rows.writeStream.format("delta").option("checkpointLocation", str(checkpoint))
            query = writer.trigger(availableNow=True).start(str(folder / hop))
        else:
            query = trilake.write_stream(rows, folder / hop, checkpoint=checkpoint, available_now=True)
        query.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
