"""Somebody with Spark: rows of records and batches, a filter, and a log written."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.first_hours.terminal import Terminal

PROGRAM = """
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    records = spark.read.format("kseg").load("data")
    print("records", records.count())
    print("some", records.where("offset >= 4 and offset < 7").count())
    print("batches", spark.read.format("kseg").option("mode", "batches").load("data").count())
    records.select("key", "value").write.format("kseg").mode("append").option(
        "topic", "copied"
    ).save("written")
    print("written", spark.read.format("kseg").load("written").count())
    permissive = spark.read.format("kseg").option("onCorrupt", "permissive").load("damaged")
    print("sound", permissive.where("corrupt IS NULL").count())
    for row in permissive.where("corrupt IS NOT NULL").select("offset", "corrupt").collect():
        print("damaged", row.offset, row.corrupt)
    spark.stop()
    """


@pytest.mark.spark
def test_the_first_hour_of_somebody_with_spark(terminal: Terminal) -> None:
    lines = "".join(f'{{"value": "v{n}"}}\\n' for n in range(10))
    terminal.types(f"printf '{lines}' | kseg append data/orders-0 --bytes utf8 --batch-records 5")
    terminal.types("cp -r data damaged")
    flip = "printf x | dd of=damaged/orders-0/00000000000000000000.log bs=1 seek=100 conv=notrunc"
    terminal.types(flip)
    (terminal.directory / "job.py").write_text(dedent(PROGRAM))
    sees = ("records 10", "some 3", "batches 2", "written 10")
    terminal.types("python job.py", *sees, "sound 5", "damaged 0 batch-crc")
    terminal.types("kseg verify written", "0 errors")
