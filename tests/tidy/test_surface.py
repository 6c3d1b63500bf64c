"""The public face: flat, resolvable, documented, typed, and cheap to import."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable

import click
import pytest

import kseg
from kseg import errors
from kseg.cli.main import VERBS, cli
from kseg.cli.verbs.spark import spark
from tests.tidy import tree

HEAVY = {"numpy", "pyarrow", "pyspark", "pandas", "rich", "click"}
DEMO_DATA = tree.ROOT / "kseg" / "demo_data"
PUBLIC_MODULES = (
    *("kseg", "kseg.arrow", "kseg.broker", "kseg.control", "kseg.internal", "kseg.legacy"),
    *("kseg.reports", "kseg.spark", "kseg.times"),
)


def modules_loaded_by(statement: str) -> set[str]:
    """Modules that a fresh interpreter holds after the statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout.splitlines()[-1]))


def packages(modules: set[str]) -> set[str]:
    """The packages that modules belong to."""
    return {module.partition(".")[0] for module in modules}


def test_importing_kseg_loads_nothing_heavy() -> None:
    assert packages(modules_loaded_by("import kseg")) & HEAVY == set()


def test_importing_the_spark_door_loads_no_spark() -> None:
    assert "pyspark" not in packages(modules_loaded_by("import kseg.spark"))


#: What only writers, fetches, lookups, readers of committed records and those of damage use.
NOT_FOR_A_SCAN = (
    "html",
    "numpy.typing",
    "kseg.files.txn_index",
    "kseg.format.bodies",
    "kseg.format.columns",
    "kseg.format.compress",
    "kseg.format.search",
    "kseg.log.config",
    "kseg.log.producers",
    "kseg.log.reader.fetch",
    "kseg.log.validate",
    "kseg.log.writer",
)


#: What a scan of single files leaves out besides: nothing looks for a place in them.
NOT_FOR_FILES = ("kseg.files.index",)


@pytest.mark.parametrize(
    ("where", "unused"),
    [("", NOT_FOR_A_SCAN), ("orders-0/*.log", NOT_FOR_A_SCAN + NOT_FOR_FILES)],
    ids=["directory", "file"],
)
def test_the_first_scan_loads_what_it_uses_and_no_more(where: str, unused: tuple[str, ...]) -> None:
    path = str(next(DEMO_DATA.glob(where)) if where else DEMO_DATA)
    loaded = modules_loaded_by(f"import kseg\nassert next(iter(kseg.scan({path!r})))")
    assert packages(loaded) & (HEAVY - {"numpy"}) == set()
    assert {module for module in loaded if module.startswith(unused)} == set()


def test_a_search_by_partitioner_and_the_metadata_verb_need_no_pyarrow() -> None:
    path = str(DEMO_DATA / "clicks-0")
    search = f"kseg.scan({path!r}, key=b'x', partitioner='murmur2', partitions=[1])"
    loaded = modules_loaded_by(
        "import sys\nsys.modules['pyarrow'] = None\nimport kseg, kseg.analysis.metadata\n"
        f"assert sum(len(one) for one in {search}) == 0\nimport kseg.records.partitioners\n"
        "del sys.modules['pyarrow']"
    )
    assert packages(loaded) & (HEAVY - {"numpy"}) == set()


def test_arrow_columns_and_tasks_of_spark_load_no_pandas() -> None:
    path = str(DEMO_DATA)
    rows = f"from pathlib import Path\nfrom tests.spark.rows import read\nread(Path({path!r}))"
    fields = "import kseg, pyarrow\nfrom kseg.format.request import FIELDS"
    scan = f"kseg.scan({path!r}, columns=FIELDS)"
    table = f"{fields}\nassert pyarrow.RecordBatchReader.from_stream({scan}).read_all()"
    loaded = modules_loaded_by(f"{rows}\n{table}")
    assert "pyarrow" in loaded
    assert {module for module in loaded if module.startswith(("pandas", "kseg.analysis"))} == set()


#: What a dump of a log leaves out: indexes, old messages, schemas, partitions and writers.
NOT_FOR_A_DUMP = (
    "html",
    "numpy.typing",
    "rich",
    "kseg.cli.decoded",
    "kseg.cli.kafka_dump.decoders",
    "kseg.files.index",
    "kseg.format.compress",
    "kseg.legacy",
    "kseg.internal.records",
    "kseg.log",
)
DUMPS = {
    "jsonl": (["--format", "jsonl"], ("kseg.cli.kafka_dump.run",)),
    "kafka": (
        ["--kafka", "--deep-iteration", "--print-data-log"],
        (),
    ),
}


@pytest.mark.parametrize("form", DUMPS)
def test_a_dump_of_a_log_loads_what_it_uses_and_no_more(form: str) -> None:
    words, unused = DUMPS[form]
    arguments = ["kseg", "dump", *words, str(next(DEMO_DATA.glob("orders-0/*.log")))]
    loaded = modules_loaded_by(
        f"import sys\nsys.argv = {arguments!r}\nfrom kseg.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code"
    )
    assert packages(loaded) & (HEAVY - {"click", "numpy"}) == set()
    assert {module for module in loaded if module.startswith((*NOT_FOR_A_DUMP, *unused))} == set()


VERB_HELPS = [[verb, "--help"] for verb in VERBS]
JOB_HELPS = [["spark", job, "--help"] for job in spark.commands]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *VERB_HELPS, *JOB_HELPS], ids=" ".join
)
def test_the_command_line_starts_light(arguments: list[str]) -> None:
    loaded = modules_loaded_by(
        "from kseg.cli.main import main\nimport sys\n"
        f"sys.argv = ['kseg', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code"
    )
    assert packages(loaded) & (HEAVY - {"click"}) == set()
    assert {module for module in loaded if module.startswith("kseg.log")} == set()


def test_every_verb_is_a_command_and_a_function_of_its_name() -> None:
    paths = (tree.ROOT / "kseg" / "cli").glob("*.py")
    modules = [importlib.import_module(f"kseg.cli.{path.stem}") for path in paths]
    for verb in VERBS:
        command = cli.get_command(click.Context(cli), verb)
        assert isinstance(command, click.Command)
        if not isinstance(command, click.Group):
            functions = [getattr(module, verb, None) for module in modules]
            assert any(inspect.isfunction(function) for function in functions), verb


@pytest.mark.parametrize("module_name", PUBLIC_MODULES)
def test_public_names_resolve_and_are_documented(module_name: str) -> None:
    module = importlib.import_module(module_name)
    assert len(module.__all__) == len(set(module.__all__))
    assert all("." not in name and name.isidentifier() for name in module.__all__)
    bare = [
        name
        for name in module.__all__
        if (inspect.isclass(value := getattr(module, name)) or callable(value))
        and not inspect.getdoc(value)
    ]
    assert bare == []


def test_every_error_can_be_caught_by_a_public_name() -> None:
    classes = inspect.getmembers(errors, inspect.isclass)
    raised = {name for name, kind in classes if issubclass(kind, errors.KsegError)}
    assert raised <= set(errors.__all__)
    assert {"KsegError", "FormatError", "AppendError", "NotALogError"} <= set(kseg.__all__)


#: The modules whose names come from the stub beside them.
DOORS = {
    path.relative_to(tree.ROOT)
    .as_posix()
    .removesuffix("/__init__.pyi")
    .removesuffix(".pyi")
    .replace("/", "."): path
    for path in tree.files(".pyi", folders=("kseg",))
    if "_kernels" not in path.parts and path.stem != "_core"
}


@pytest.mark.parametrize("package", DOORS)
def test_a_door_gives_just_what_its_stub_says(package: str) -> None:
    module = importlib.import_module(package)
    offered = {
        alias.name: str(node.module)
        for node in tree.module(DOORS[package]).body
        if isinstance(node, ast.ImportFrom) and node.module != "kseg"
        for alias in node.names
        if alias.asname
    }
    assert offered
    assert {name for name in module.__all__ if name != "__version__"} == offered.keys()
    for name, home in offered.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    if package == "kseg":
        assert {name: home for name, home in offered.items() if not _is_made_in(name, home)} == {}


def _is_made_in(name: str, home: str) -> bool:
    return getattr(getattr(importlib.import_module(home), name), "__module__", home) == home


def test_dir_shows_the_public_names() -> None:
    assert set(kseg.__all__) <= set(dir(kseg))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = kseg.no_such_name


def test_every_kernel_has_a_stub_and_every_stub_a_kernel() -> None:
    kernels = {path.stem for path in tree.files(".pyx", folders=("kseg",))}
    stubs = {path.stem for path in tree.files(".pyi", folders=("kseg",))} - {
        "__init__",
        "broker",
        "reports",
    }
    assert kernels == stubs


def test_every_public_kernel_says_what_it_does() -> None:
    functions = [f for path in tree.files(".pyx") for f in tree.cython_functions(path)]
    source = {path: path.read_text(encoding="utf-8").splitlines() for path in tree.files(".pyx")}
    lines = {tree.name(path): text for path, text in source.items()}
    public = [f for f in functions if lines[f.path][f.line - 1].startswith("def ")]
    assert public
    assert [f"{f.path}:{f.line} {f.name}" for f in public if not f.documented] == []


def test_the_version_is_the_installed_one() -> None:
    from importlib.metadata import version

    assert kseg.__version__ == version("kseg")


@pytest.mark.parametrize(
    "name", [name for name in kseg.__all__ if inspect.isfunction(getattr(kseg, name))]
)
def test_every_public_function_says_what_it_takes_and_raises(name: str) -> None:
    function = getattr(kseg, name)
    said, given = inspect.getdoc(function) or "", len(inspect.signature(function).parameters)
    wanted = [*(["Raises:"] if given else []), *(["Args:"] if given > 2 else [])]
    assert [section for section in wanted if f"\n{section}\n" not in said] == []


def test_the_readme_names_every_verb_in_420_words() -> None:
    text = (tree.ROOT / "README.md").read_text(encoding="utf-8")
    assert [verb for verb in VERBS if f"`{verb}`" not in text] == []
    assert len(text.split()) <= 420


def public_functions() -> dict[str, Callable[..., object]]:
    """Functions of the public names, and the methods that their classes define, by name."""
    found: dict[str, Callable[..., object]] = {}
    for module in PUBLIC_MODULES:
        home = importlib.import_module(module)
        for value in (getattr(home, name) for name in home.__all__):
            if inspect.isfunction(value):
                found[f"{value.__module__}.{value.__qualname__}"] = value
            elif inspect.isclass(value) and value.__module__.startswith("kseg"):
                for name, method in vars(value).items():
                    method = getattr(method, "__func__", method)
                    if inspect.isfunction(method) and not name.startswith("_"):
                        found[f"{value.__module__}.{value.__qualname__}.{name}"] = method
    return found


def unsaid(function: Callable[..., object]) -> str:
    """What a docstring leaves out: arguments that it does not name, errors, or nothing."""
    text = inspect.getdoc(function) or ""
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    if "Args:" not in text and not all(re.search(rf"\b{name}\b", text) for name in names):
        return "Args"
    body = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
    raises = any(isinstance(one, ast.Raise) and one.exc is not None for one in body)
    return "Raises" if raises and "Raises:" not in text else ""


def test_public_functions_say_what_they_take_and_raise() -> None:
    functions = public_functions()
    assert len(functions) > 100
    assert {name: unsaid(one) for name, one in functions.items() if unsaid(one)} == {}
