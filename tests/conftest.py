"""Options and profiles that every test folder shares."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, settings

from tests import places
from tests.fixture_archives import ARCHIVES, unpacked
from tests.shares import WHOLE

TESTS = Path(__file__).parent
IN_THE_SDIST = (
    "this is an sdist: it has the tests of the kernels (tools/kernel_tests.txt), and neither the "
    "other tests nor the logs of brokers that they read (tests/data); both are in the repository"
)

# Derandomised: the same commit gives the same examples, so a failure repeats without its seed.
settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.register_profile("long", settings.get_profile("ci"), derandomize=False, max_examples=3000)
settings.load_profile("ci")


# A shell's job in the background ignores interrupts, and so does what tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# pytest asks for this when the first test wants a directory, and tells its workers.
if (memory := places.in_memory()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Both directories may be replaced by larger sets of the same layout."""
    group = parser.getgroup("kseg")
    # pytest's own --fixtures, a listing, gives way; it is still there as --funcargs.
    group._arggroup.conflict_handler = "resolve"
    group.addoption(
        "--vectors",
        type=Path,
        default=TESTS / "conformance" / "vectors",
        help="directory that holds records.json",
    )
    group.addoption(
        "--fixtures",
        type=Path,
        default=unpacked(),
        help="directory that holds old/<case> and new/<case>; those of tests/data by default",
    )


def _group(path: str) -> str:
    """The tests that one process gets together: those of a file, and all that share a Spark."""
    spark = path.startswith("tests/spark/") or path == "tests/unit/cli/test_spark.py"
    return "spark" if spark else path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups that take longest begin first, lest one is alone in the end."""
    longest = ("spark", "tests/interop/broker/test_pre_recovery.py")
    items.sort(key=lambda item: _group(item.nodeid.partition("::")[0]) not in longest)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile` by `_group`; clusters start a Spark of their own for each file."""
    if config.getvalue("dist") != "loadfile" or config.getoption("markexpr") == "cluster":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByGroup(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(super()._split_scope(nodeid))

    return ByGroup(config, log)


def _directory(config: pytest.Config, option: str) -> Path:
    directory = Path(config.getoption(option)).resolve()
    if not directory.is_dir():
        hint = f"; {IN_THE_SDIST}" if not ARCHIVES.is_dir() else ""
        raise pytest.UsageError(f"{option}: {directory} is not a directory{hint}")
    return directory


def pytest_report_header() -> list[str]:
    """Say what an sdist lacks."""
    return [] if ARCHIVES.is_dir() else [f"kseg: {IN_THE_SDIST}"]


@pytest.fixture(scope="session")
def vectors_dir(pytestconfig: pytest.Config) -> Path:
    """The directory of `--vectors`."""
    return _directory(pytestconfig, "--vectors")


@pytest.fixture(scope="session")
def fixtures_dir(pytestconfig: pytest.Config) -> Path:
    """The directory of `--fixtures`: it holds `old/` and `new/` with one folder per case."""
    return _directory(pytestconfig, "--fixtures")


@pytest.fixture(scope="session")
def fixture_cases(pytestconfig: pytest.Config) -> list[Path]:
    """Every case folder of `--fixtures`, in a fixed order."""
    return case_folders(pytestconfig)


def case_folders(config: pytest.Config) -> list[Path]:
    """Every case folder: also for `pytest_generate_tests`, which cannot ask a fixture."""
    directory = _directory(config, "--fixtures")
    folders = [path.parent for side in ("new", "old") for path in cases_of(directory / side)]
    if not folders:
        raise pytest.UsageError(f"--fixtures: no old/* nor new/*/case.json in {directory}")
    return folders


def cases_of(side: Path) -> list[Path]:
    return sorted(side.glob("*/case.json"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for `fixture_case` runs once for each case folder, or for its share."""
    if "fixture_case" in metafunc.fixturenames:
        folders = case_folders(metafunc.config)
        marker = metafunc.definition.get_closest_marker("one_case_in")
        if marker is not None and not WHOLE:
            (step,) = marker.args
            folders = folders[zlib.crc32(metafunc.function.__name__.encode()) % step :: step]
        names = [f"{path.parent.name}/{path.name}" for path in folders]
        metafunc.parametrize("fixture_case", folders, ids=names)


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory of pytest's, in memory where there is room; on a disk for those marked so."""
    if request.node.get_closest_marker("disk") is None:
        yield tmp_path
        return
    with places.on_disk() as path:
        yield Path(path)


#: How compressed bytes are inflated: by the libraries that this process uses and the kernel's own
#: code, or by packages of Python.
CODEC_WAYS = ("libraries", "packages")


@pytest.fixture(params=CODEC_WAYS)
def codec_way(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Literal["libraries", "packages"]]:
    """A test that asks for this runs both ways; programs that it starts go the same way."""
    from kseg._kernels import inflate

    by_libraries = request.param == "libraries"
    before = inflate.use_libraries(by_libraries, by_libraries)
    if not by_libraries:
        monkeypatch.setenv("KSEG_CODECS", "packages")
    else:
        told = inflate.libraries().values()
        # One that is there and too old is a way of its own: packages take its place.
        missing = [f"{name}: {why}" for name, _, _, why in told if why not in ("", "it is too old")]
        assert not (missing and os.environ.get("CI")), missing
        if missing:
            pytest.skip("; ".join(missing))
    yield request.param
    inflate.use_libraries(*before)


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A directory that every user can come to, unlike `tmp_path`."""
    with TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield Path(path)
