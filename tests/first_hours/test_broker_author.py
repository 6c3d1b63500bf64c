"""The author of a broker: batches in as a leader and as a follower, bytes out, a kill, a look."""

from __future__ import annotations

from textwrap import dedent

from tests.first_hours.terminal import Terminal

LEADER = """
    import kseg

    with kseg.Log.open("leader/orders-0", mode="append", create=True) as log:
        for n in range(5):
            batch = kseg.encode_batch({"value": [b"a%d" % n, b"b%d" % n]}, kseg.BatchOptions())
            print(log.append(batch).first_offset, end=" ")
        print(log.log_end_offset)
    """
FOLLOWER = """
    import kseg

    leader = kseg.Log.open("leader/orders-0")
    with kseg.Log.open("follower/orders-0", mode="append", create=True) as log:
        while True:
            fetched = leader.fetch(log.log_end_offset, isolation="log_end")
            if not fetched.size:
                break
            log.append_as_follower(fetched.data)
        print("follower ends at", log.log_end_offset)
    """
KILLED = """
    import os, signal
    import kseg

    log = kseg.Log.open("leader/orders-0", mode="append")
    log.append(kseg.encode_batch({"value": [b"last"]}, kseg.BatchOptions()))
    log.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    """
SHOWN = """
    import kseg

    one, other = (kseg.scan(f"{side}/orders-0").to_arrow() for side in ("leader", "follower"))
    print(one["value"].to_pylist()[-2:], one.slice(0, 10).equals(other.slice(0, 10)))
    """


def test_the_first_hour_of_a_brokers_author(terminal: Terminal) -> None:
    terminal.runs(LEADER, "0 2 4 6 8 10")
    terminal.runs(FOLLOWER, "follower ends at 10")
    terminal.types("kseg verify leader follower", "0 errors")
    terminal.types("cmp leader/orders-0/*.log follower/orders-0/*.log")

    # Killed behind a flush: what was acknowledged is there.
    (terminal.directory / "killed.py").write_text(dedent(KILLED))
    terminal.types("python killed.py", code=137)
    terminal.types("kseg recover leader --apply")
    terminal.runs(SHOWN, "[b'b4', b'last'] True")
    terminal.runs(FOLLOWER, "follower ends at 11")
    terminal.types("kseg verify leader follower", "0 errors, 0 warnings")


PARTITIONS = """
    import os
    import kseg

    os.mkdir("broker")
    settings = kseg.LogConfig(segment_bytes=500)
    with kseg.LogDirectory.open("broker", mode="append", config=settings) as directory:
        for number in range(3):
            log = directory.create("orders", number)
            for n in range(20):
                log.append(kseg.encode_batch({"value": [b"%d" % n]}, kseg.BatchOptions()))
            log.roll()
            print(number, log.log_end_offset, len(log.segments), end="; ")
    """
WRITER = """
    import itertools
    import kseg

    directory = kseg.LogDirectory.open("broker", mode="append")
    for log in itertools.cycle(directory.logs.values()):
        batch = kseg.encode_batch({"value": [b"more"]}, kseg.BatchOptions())
        print(log.path.name, log.append(batch, durable=True).last_offset, flush=True)
    """
RESTART = """
    import subprocess, sys
    import kseg

    writer = subprocess.Popen([sys.executable, "writer.py"], stdout=subprocess.PIPE, text=True)
    acknowledged = dict(writer.stdout.readline().split() for _ in range(30))
    writer.kill()
    print(writer.wait())
    writer.stdout.close()
    try:
        kseg.LogDirectory.open("broker", mode="append")
    except kseg.UncleanShutdownError as error:
        print(error)
    with kseg.LogDirectory.open("broker", mode="append", recover=True) as directory:
        for log in directory.logs.values():
            print(log.path.name, log.log_end_offset > int(acknowledged[log.path.name]) >= 29)
    """
REFUSED = """
    import kseg

    good = kseg.encode_batch({"value": [b"good"]}, kseg.BatchOptions()).data
    flipped = bytearray(good)
    flipped[-1] ^= 1
    long = bytearray(good)
    long[8:12] = (2**31 - 1).to_bytes(4, "big")
    with kseg.Log.open("refusing-0", mode="append", create=True) as log:
        for data in (b"x", good[:-3], flipped, long):
            try:
                log.append(bytes(data))
            except kseg.KsegError as error:
                print(type(error).__name__, error)
        leaders = kseg.encode_batch({"value": [b"good"]}, kseg.BatchOptions(leader_epoch=0)).data
        fetched = bytes(leaders) + bytes(leaders[:-3])  # a fetch ends where its limit is
        print(log.append_as_follower(fetched).trimmed_bytes, "bytes left for the next fetch")
        try:
            log.append_as_follower(leaders)
        except kseg.KsegError as error:
            print(type(error).__name__, error)
        print("ends at", log.log_end_offset)
    """


def test_many_partitions_and_a_writer_that_is_killed(terminal: Terminal) -> None:
    terminal.runs(PARTITIONS, "0 20 4; 1 20 4; 2 20 4;")
    terminal.types("kseg info broker", "orders-0", "orders-1", "orders-2")
    (terminal.directory / "writer.py").write_text(dedent(WRITER))
    sees = ("-9", "was not shut down cleanly", "orders-0 True", "orders-1 True", "orders-2 True")
    terminal.runs(RESTART, *sees)
    terminal.types("kseg verify broker", "0 errors, 0 warnings")
    terminal.types("kseg recover broker", "nothing to do")


def test_what_a_log_refuses_is_told_and_leaves_nothing(terminal: Terminal) -> None:
    terminal.runs(
        REFUSED,
        "CorruptRecordError",
        "the last 1 bytes are not a whole batch",
        "CorruptRecordError",
        "are not a whole batch",
        "does not match its checksum",
        "are not a whole batch",
        "69 bytes left for the next fetch",
        "UnexpectedAppendOffsetError offset 0 where the log continues at 1",
        "ends at 1",
    )
    terminal.types("kseg verify refusing-0", "1 record: 0 errors")
