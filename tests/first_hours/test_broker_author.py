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
