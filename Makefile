# kseg: `make demo` shows it, `make test` tests it. Both set up all they need in .venv first.

VENV ?= .venv
PY := $(VENV)/bin/python
SOURCES := setup.py $(wildcard kseg/*.p[xy][dx] kseg/_kernels/*.p[xy][dx] kseg/csrc/*.[ch])
KERNELS = $(subst /,.,$(patsubst %.pyx,%,$(wildcard kseg/*.pyx kseg/_kernels/*.pyx)))
# By file, and the files of Spark as one (tests/conftest.py), so that it is started once; that begins
# first, since it takes longest. Three processes on two cores, since Spark waits a lot.
PYTEST = $(PY) -m pytest -p no:benchmark -n 3 --dist loadfile --no-loadscope-reorder
SECONDS ?= 60
SEED ?= 1
ARGS ?=

.PHONY: help
help:
	@echo 'make demo      the tour: a real log verified, shown, decoded, and read through Spark'
	@echo 'make test      the tests          make test-all   the slow ones too'
	@echo 'make clusters  the tests on clusters of processes, some killed, and on a broker'
	@echo 'make build     kernels in place   make debug      kernels with bounds checks, unoptimised'
	@echo 'make man       the manual page, docs/kseg.1'
	@echo 'make site      these pages and the reference, as HTML in build/site'
	@echo 'make lint      every style check  make dist       sdist and wheel, checked, in dist/'
	@echo 'make wheels    portable wheels    make release-check  the wheels, tried on other systems'
	@echo 'make fuzz      mutated bytes for SECONDS=60; make asan: the same under the sanitizers'
	@echo 'make soak      long random runs   make bench      ratios against peers'
	@echo 'make clean     drops what was built; .venv stays'

.PHONY: demo test test-all clusters build debug
demo: machine $(VENV)/.built $(VENV)/.with-spark
	$(VENV)/bin/kseg demo $(ARGS)

test: machine $(VENV)/.built $(VENV)/.with-test
	$(PYTEST) $(ARGS)

test-all: machine $(VENV)/.built $(VENV)/.with-test
	$(PYTEST) -m 'not cluster and not broker' $(ARGS)

# Side by side: much of the time of either goes into waiting for what it has started.
CLUSTERS := tests/spark/test_cluster.py tests/spark/test_sink.py tests/interop/broker
clusters: machine $(VENV)/.built $(VENV)/.with-test
	$(PYTEST) -m 'cluster or broker' $(CLUSTERS) $(ARGS)

build: $(VENV)/.built $(VENV)/.with-speed

debug: $(VENV)/.with-test
	rm -f kseg/*.so kseg/_kernels/*.so $(VENV)/.built
	KSEG_DEBUG=1 $(PY) setup.py -q build_ext --inplace -b build/debug/lib -t build/debug/temp
	@echo 'The kernels carry checks now; "make build" puts the fast ones back.'

# In the settings of docs/conf.py a link between pages that leads nowhere is a warning, too.
.PHONY: man
man: $(VENV)/.built
	$(PY) -m tools.manual >docs/kseg.1

.PHONY: site
site: $(VENV)/.built $(VENV)/.with-arrow $(VENV)/.with-docs
	$(VENV)/bin/sphinx-build -q -W --keep-going -j auto -d build/site-cache docs build/site
	@echo 'build/site/index.html'

# Needs chromium, chromedriver and npm (Debian: chromium chromium-driver npm).
.PHONY: site-check site-links
site-check: site $(VENV)/.with-browser
	npm install --no-save --silent --prefix build/browser axe-core@4
	$(PY) tools/check_site.py build/site build/pictures \
		--axe build/browser/node_modules/axe-core/axe.min.js
	$(PY) tools/check_report.py build/report --axe build/browser/node_modules/axe-core/axe.min.js

site-links: site # those to other sites; needs a network
	$(VENV)/bin/sphinx-build -q -b linkcheck docs build/site-links

.PHONY: lint fuzz asan soak bench sdist wheel dist clean
lint: $(VENV)/.built $(VENV)/.with-test $(VENV)/.with-lint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) tools/check_recipes.py docs/python.md
	$(PY) -m mypy.stubtest $(KERNELS) --allowlist tools/stubtest_allowed.txt
	PATH="$(abspath $(VENV))/bin:$$PATH" cython-lint kseg
	$(CC) -std=c11 -fsyntax-only -Wall -Wextra -Wconversion -Werror kseg/csrc/*.c
	$(VENV)/bin/lint-imports

fuzz: $(VENV)/.built $(VENV)/.with-test
	$(PY) -m tests.fuzz.fuzz_read --seconds $(SECONDS) $(ARGS)

asan: $(VENV)/.with-test
	$(PY) -m tests.fuzz.asan --seconds $(SECONDS) $(ARGS)

soak: $(VENV)/.built $(VENV)/.with-test
	$(PYTEST) tests/property tests/fuzz -m '' --hypothesis-profile long $(ARGS)
	KSEG_WHOLE=1 $(PYTEST) $(ARGS)
	KSEG_WHOLE=1 $(PYTEST) -m 'cluster or broker' $(CLUSTERS) $(ARGS)
	KSEG_KILLS=20 $(PY) -m pytest -p no:benchmark -m cluster -rP tests/spark/test_sink.py $(ARGS)
	$(PY) -m tests.fuzz.fuzz_read --seconds 600
	$(PY) -m tests.fuzz.fuzz_borders --cases 100000 --seed $(SEED)
	$(PY) -m tests.fuzz.fuzz_columns --cases 1000000 --seed $(SEED)
	$(PY) -m tests.fuzz.changing --seconds 600 --seed $(SEED)
	$(PY) -m tests.fuzz.changing --seconds 600 --seed $(SEED) --sanitized
	$(PY) -m tests.interop.differential --cases 20000 --seed $(SEED)
	$(PY) -m tests.interop.differential --cases 5000 --seed $(SEED) --kafka 4.2.0
	$(PY) -m tests.interop.differential --cases 5000 --seed $(SEED) --kafka 0.10.1.1
	$(PY) -m tests.interop.logs --cases 2000 --seed $(SEED)
	$(PY) -m tests.interop.differential --cases 5000 --seed $(SEED) --kafka 4.4.0
	KSEG_KAFKA=4.4.0 $(PY) -m tests.interop.logs --cases 2000 --seed $(SEED)
	KSEG_KAFKA=4.4.0 $(PY) -m tests.interop.dumps --cases 5000 --seed $(SEED)
	KSEG_KAFKA=4.4.0 $(PYTEST) -m '' tests/interop $(ARGS)
	$(PY) -m tests.interop.dumps --cases 20000 --seed $(SEED)
	$(PY) -m tests.crash.soak --kills 100000 --states 200000 --seed $(SEED)
	$(PY) -m tests.memory.beside 250000 $(SEED)

bench: machine $(VENV)/.built $(VENV)/.with-test
	$(PY) -m bench $(ARGS)
	$(PY) -m bench.journeys

sdist: $(VENV)/.made
	rm -rf dist *.egg-info # which would bring files of an earlier list
	$(PY) -m build --quiet --no-isolation --sdist

wheel: # of the sdist that lies there
	$(PY) -m pip wheel -q --no-build-isolation --no-deps -w dist dist/*.tar.gz

dist: sdist
	$(MAKE) wheel
	$(PY) tools/check_dist.py dist

.PHONY: wheels release-check
wheels: sdist $(VENV)/.with-release # what this machine can build, in dist/wheels/
	tools/release/wheels.sh

release-check: wheels site-check
	tools/release/check.sh

clean:
	rm -rf build dist *.egg-info kseg/*.so kseg/_kernels/*.so $(VENV)/.built
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks

# Set-up, each step once: the private environment, what the extras name, the kernels.
.PHONY: machine
machine:
	@tools/check_machine.sh java >/dev/null

$(VENV)/.made:
	@python=$$(tools/check_machine.sh) && set -x && "$$python" -m venv $(VENV)
	$(PY) -m pip install -q -U pip
	$(PY) -m pip install -q --group build
	@touch $@

$(VENV)/.with-lint $(VENV)/.with-docs $(VENV)/.with-browser: $(VENV)/.with-%: pyproject.toml | $(VENV)/.made
	$(PY) -m pip install -q --group $*
	@touch $@

$(VENV)/.with-%: pyproject.toml | $(VENV)/.made
	KSEG_NO_KERNELS=1 $(PY) -m pip install -q --no-build-isolation -e '.[$*]'
	@touch $@

$(VENV)/.built: $(SOURCES) | $(VENV)/.made
	@[ ! -d build/debug ] || rm -rf build/debug kseg/*.so kseg/_kernels/*.so
	$(PY) setup.py -q build_ext --inplace
	@touch $@
