# Needs make, a POSIX shell and Python 3.11 or later; everything else is set up from here.

# Another environment, such as one with another Python: see `make test-pythons`.
VENV := .venv
export VENV
python := $(VENV)/bin/python
# Tests wait more than they work, so there are more workers than cores of a small machine.
WORKERS ?= 6
MINUTES ?= 10
URL ?= $(COORDLOCK_URL)
export URL

# Tests start some thousand processes; each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# The extra that the demo's URL needs, after a comma; the embedded backends need none.
comma := ,
demo_backend = $(addprefix $(comma),$(filter zookeeper etcd redis,$(firstword $(subst :, ,$(URL)))))

# The etcd and ZooKeeper of another Debian release, or another PostgreSQL, Redis or Valkey, for the tests, the soak and the benchmark.
ifdef RELEASE
export PATH := $(CURDIR)/build/servers/$(RELEASE)/usr/bin:$(PATH)
ifneq ($(filter postgresql-%,$(RELEASE)),)
export COORDLOCK_TEST_POSTGRES_BIN := $(CURDIR)/build/servers/$(RELEASE)/usr/bin
else ifeq ($(filter valkey% redis-%,$(RELEASE)),)
export COORDLOCK_TEST_JARS := $(CURDIR)/build/servers/$(RELEASE)/usr/share/java
endif
endif

.PHONY: help demo peers test test-fast test-faults mutants test-pythons check fmt docs setup servers \
	test-install release bench cluster soak test-compose clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: ## Show locks, waiters and a crash; URL=... to use a running etcd, ZooKeeper or Redis
	@scripts/setup cli$(demo_backend)
	@$(VENV)/bin/coordlock demo $${URL:+--url "$$URL"}

# One test that failed is repeated, alone, and named; two fail the run. A machine that stands still for
# seconds must not stop a change. pytest's status 1 says that tests failed, and nothing else went wrong.
# A test that a stall can fail is mended, or quarantined by name in tests/conftest.py.
# Django needs PostgreSQL 14.
tests = $(python) -m pytest -n $(WORKERS) --durations=25 $(if $(filter postgresql-13,$(RELEASE)),-k "not django")
failed := .pytest_cache/v/cache/lastfailed
test: check servers ## Set everything up, then run the linters and the tests; ARGS=... for pytest
	@$(tests) --dist worksteal -m "not long" --cache-clear $(ARGS) || { \
		test $$? -eq 1 && test "$$(grep -c ': true' $(failed))" -le 1 && \
		echo "repeating alone what failed:" && grep ': true' $(failed) && \
		$(python) -m pytest -m "not long" --last-failed $(ARGS) -n 0; }

# They wait little, and each worker collects them all.
test-fast: WORKERS := 3
test-fast: setup ## Run the tests that need no servers; ARGS=... for pytest
	$(tests) --dist worksteal --hypothesis-profile=fast \
		--without=etcd,pgbouncer,postgres,prometheus,redis,spin,zookeeper \
		-m "not faults and not long and not slow" tests/contract tests/docs tests/simulation tests/unit $(ARGS)

test-faults: setup servers ## Run all that kills, pauses and cuts off; ARGS=... for pytest
	$(tests) -m "faults or long" $(ARGS)

mutants: setup ## Plant the faults that a tool has drawn, and see which the tests catch; ARGS=--help
	$(python) scripts/mutants.py run --workers $(WORKERS) $(ARGS)

test-pythons: setup ## Run test-fast on every Python that pyproject.toml claims, installed or unpacked from Debian; ARGS=...
	@scripts/test-pythons

check: setup ## Run the linters, the type checker and the check of the pages' prose
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy
	$(python) -m scripts.prose

fmt: setup ## Format the code and fix what the linter can
	$(python) -m ruff check --fix
	$(python) -m ruff format

docs: ## Make the site of the documentation, in build/site; what is broken fails it
	@scripts/setup docs
	@$(python) -m sphinx --quiet --fresh-env --write-all --fail-on-warning --keep-going \
		--conf-dir docs --doctree-dir build/doctrees . build/site $(ARGS)
	@echo "docs: open build/site/docs/index.html"

setup: ## Make .venv with coordlock, all extras and the development tools
	@scripts/setup dev

servers: ## Install the servers that the tests start (Debian, as root); RELEASE=trixie for later ones
	@scripts/servers
	@$(if $(RELEASE),scripts/unpack-servers $(RELEASE))

test-install: setup ## Build the packages and try every extra in an environment of its own
	@COORDLOCK_TEST_ETCD_URL= COORDLOCK_TEST_REDIS_URL= COORDLOCK_TEST_ZOOKEEPER_URL= scripts/servers
	$(python) scripts/install_matrix.py $(ARGS)

release: setup ## Build what is published into dist/, and check it; publishes nothing. RELEASING.md
	@$(python) scripts/release.py $(ARGS)

cluster: setup ## Run three nodes each of etcd and ZooKeeper until Ctrl-C; ARGS=--json
	@COORDLOCK_TEST_ETCD_URL= COORDLOCK_TEST_REDIS_URL= COORDLOCK_TEST_ZOOKEEPER_URL= scripts/servers
	@$(if $(RELEASE),scripts/unpack-servers $(RELEASE))
	@$(python) scripts/cluster.py $(ARGS)

test-compose: setup ## Run the contract suite against compose/'s containers; ARGS=--build makes the images
	@WORKERS=$(WORKERS) $(python) scripts/test_compose.py $(ARGS)

soak: setup servers ## Clients at work under faults for MINUTES (10) on each backend; ARGS=--help
	@$(python) -m testbed.soak --minutes $(MINUTES) $(ARGS)

bench: setup servers ## Measure coordlock beside its peers, into build/bench; ARGS=--help
	@$(python) -m bench $(ARGS)

peers: setup ## Run redis-py's and filelock's own tests of locks on coordlock, and say which pass
	@$(python) -m tests.peers

clean: ## Remove .venv and everything that was built
	rm -rf .venv .venvs build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
