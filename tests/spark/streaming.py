"""A stream from one data directory into another, as a program that may be killed at any moment.

python -m tests.spark.streaming SOURCE TARGET CHECKPOINT
"""

from __future__ import annotations

import os
import sys


def main(source: str, target: str, checkpoint: str) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    print("started", flush=True)
    query = (
        spark.readStream.format("kseg")
        .option("maxOffsetsPerTrigger", "300")
        .load(source)
        .writeStream.format("kseg")
        .option("path", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
