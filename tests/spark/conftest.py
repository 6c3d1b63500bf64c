"""One Spark for all tests: starting it takes seconds, a query on it a fraction of one."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="session")
def s3_socket() -> Iterator[socket.socket]:
    """The address of S3 for all tests. Spark's workers learn of it when Spark starts.

    It is taken before Spark starts, so that no program can have it when a test starts S3.
    """
    with socket.create_server(("127.0.0.1", 0)) as taken:
        os.environ |= {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{taken.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        yield taken


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, s3_socket: socket.socket
) -> Iterator[SparkSession]:
    """A local Spark on two cores, to which nobody has introduced kseg: it finds it by name."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("kseg tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.ui.enabled", "false")
        # Queries this short end before the second compiler has paid for itself.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.showConsoleProgress", "false")
    )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(params=["false", "true"], ids=["unfiltered", "pushdown"])
def pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways in which Spark can be set up to deal with filters."""
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param
    spark.conf.unset(PUSHDOWN)


@pytest.fixture(scope="session")
def plain_log(fixtures_dir: Path) -> Path:
    """A log of several segments with times of all sorts."""
    return fixtures_dir / "new" / "4.2.0-plain" / "plain-ts-shuffled-0"
