# What developers and CI call. The commands are those of the virtual environment beside this file, if there is one.

BIN := $(if $(wildcard .venv/bin),.venv/bin/,)
LOGS := build/tests
CLASSES := $(LOGS)/spark.jsa
QUICK_JVM := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable
FAST_PARTS := fast-1 fast-2 fast-3 fast-4
PARTS := test-7 test-1 test-5 test-6 test-2 test-8 test-4 test-3
PYTHONS := python-3.12 python-3.13
LONG_TESTS := long-1 long-2 long-3 long-4 long-5 long-6 long-7 long-8
SOAKS := long-soak-transactions long-soak-trees long-soak-kafka long-spark-cluster long-mutants
LONG_PARTS := $(LONG_TESTS:%=$(LOGS)/%.passed) $(SOAKS:%=$(LOGS)/%.passed)

.PHONY: help browser fast $(FAST_PARTS) long long-again $(LONG_TESTS) $(SOAKS) test test-with-spark test-with-kafka $(PARTS) history-tenth compat $(PYTHONS) lint packages site docs bench

help:
	@echo "make fast    the tests without Spark and without what is slow, in about ninety seconds"
	@echo "make test    lint, and every test but the long ones, three processes at a time; their output is kept in $(LOGS)"
	@echo "make long    the long ones: kills and other disasters at further moments, short soaks, and thousands of small changes to the pure parts; goes on where it was stopped"
	@echo "make history-tenth  what 43,200 commit groups of a topology leave on the disk, and whether later ones cost more"
	@echo "make compat  the tests that depend on Spark's insides, with the lowest and the highest version"
	@echo "make lint    style, types and import contracts"
	@echo "make packages  the packages of a release, in build/dist"
	@echo "make docs    the site, in build/site"
	@echo "make bench   the small benchmarks"

# Recipes that run side by side write to files, and show their output when they end.
side_by_side = @$(MAKE) --no-print-directory --keep-going --jobs=$(1) $(2)
logged = $(call kept,$(1),$(BIN))
kept = @mkdir -p $(LOGS); echo "$(1)"; $(NICE) $(2)$(1) >$(LOGS)/$@.log 2>&1; status=$$?; cat $(LOGS)/$@.log; exit $$status

# Three processes keep two cores busy, since some tests wait for a server; the fast ones wait most, and are in four.
# Their folders are in memory if that can be, where a sync costs nothing: what must be synced is recorded, not timed. The
# long ones are on the disk.
fast test history-tenth: export TMPDIR := $(firstword $(wildcard /dev/shm) $(TMPDIR) /tmp)

# How much hypothesis tries: little in the fast suite, much in the long one, unless the caller says how much.
fast: export HYPOTHESIS_PROFILE ?= fast
long: export HYPOTHESIS_PROFILE ?= long

fast:
	$(call side_by_side,4,$(FAST_PARTS))

$(FAST_PARTS):
	$(call logged,pytest -q -m 'not spark and not slow' --part $(subst fast-,,$@)/$(words $(FAST_PARTS)))

# A part that has passed is not run again until `make long-again`, or until the sources have changed.
long: $(CLASSES)
	$(call side_by_side,2,$(LONG_PARTS))

long-again:
	rm -f $(LONG_PARTS)

$(LOGS)/%.passed: $(shell git ls-files '*.py' pyproject.toml)
	@$(MAKE) --no-print-directory $* && touch $@

$(LONG_TESTS):
	$(call logged,pytest -q --durations=30 -m 'long or hypothesis' --part $(subst long-,,$@)/$(words $(LONG_TESTS)))

long-soak-transactions:
	$(call logged,python -m tests.harness.soak transactions --kills 25)

long-soak-trees:
	$(call logged,python -m tests.harness.soak trees --messages 100000 --kills 20)

long-soak-kafka:
	$(call logged,python -m tests.harness.soak kafka --records 20000)

long-spark-cluster:
	$(call logged,python -m tests.harness.spark_cluster --kill)

# Needs the extra "mutation". The fast profile of hypothesis is enough for a change, and there are thousands.
long-mutants: export HYPOTHESIS_PROFILE = fast
long-mutants:
	$(call logged,python -m tests.harness.mutants.pure)

# The tests that share a session of Spark wait for its jobs most of the time, so others run beside them, and whoever is
# done takes the next part. If one part fails, the others still run to their end. Most of the time of a JVM that runs
# Spark for some seconds is spent on loading classes and compiling; a third of it is left with these options.
test long compat: export SPARK_LAUNCHER_OPTS := $(QUICK_JVM)
test long: export SPARK_SUBMIT_OPTS := $(QUICK_JVM) -XX:SharedArchiveFile=$(abspath $(CLASSES))

# Style and types come first: they take seconds, and a slip in them should not cost the time of the tests; what the tests need
# is made beside them. What could not be tested here is said last.
#
# CI says what else belongs into the queue, FIRST what takes long, which waits for neither, and LAST. The parts are in the order
# of the time that they took, but for one that waits for a browser most of the time.
JOBS := 3
# What is not a test runs before them: the tenth of a day is one process, and would be the last one for minutes.
test-with-spark test-with-kafka $(PARTS): NICE := nice -n 5
test-with-spark test-with-kafka $(PARTS) $(LAST): | lint $(CLASSES) browser
test:
	$(call side_by_side,$(JOBS),$(FIRST) lint $(CLASSES) browser test-with-spark test-with-kafka $(PARTS) $(LAST))
	@sed -n 's/^SKIPPED.*\(not tested: .*\)/\1/p' $(LOGS)/test-*.log | sort -u

# What a tenth of a day of history costs, 43,200 commit groups at five a second, by a simulated clock, with rows so small that
# what a group costs whatever it writes is most of it. By counts, since the machine is busy.
history-tenth:
	$(call logged,python -m tests.harness.history --keys 1000 --touched 10 --row-bytes 20 --counts --hours 2.4 --step 0.2)

# The page's tests open it in a real browser: Debian's, if it is not there and may be installed.
browser:
	@$(BIN)python -m tests.ui.browser

$(CLASSES):
	-SPARK_SUBMIT_OPTS="$(QUICK_JVM)" $(BIN)python -m tests.spark.class_archive $@

# The files that name the fixture; to collect all others takes as long as some tests.
test-with-spark:
	$(call logged,pytest -q --durations=30 -m 'spark and not long' $(shell git grep -lw spark -- ':(glob)tests/**/test_*.py'))

# These share a broker, which takes 3 CPU seconds to start and 3 % of a core while it idles; in each part there was one.
WITH_KAFKA = $(sort $(shell git ls-files ':(glob)tests/**/kafka/**/test_*.py' ':(glob)tests/**/test_kafka.py'; git grep -l 'def .*\<kafka\>' -- ':(glob)tests/**/test_*.py'))
test-with-kafka:
	$(call logged,pytest -q --durations=30 -m 'not spark and not long' $(WITH_KAFKA))

$(PARTS):
	$(call logged,pytest -q --durations=30 -m 'not spark and not long' $(WITH_KAFKA:%=--ignore=%) --part $(subst test-,,$@)/$(words $(PARTS)))

compat: export SPARK_SUBMIT_OPTS := $(QUICK_JVM)
compat:
	$(BIN)python -m tests.harness.compat --quick 3.5.1 4.3.0

lint:
	$(BIN)ruff check .
	$(BIN)ruff format --check .
	$(BIN)mypy
	$(BIN)lint-imports

# The wheel is built from the archive of the sources.
packages:
	rm -rf build/dist && $(BIN)uv build --quiet --out-dir build/dist

# The wheel on another Python, as its users have it.
$(PYTHONS): packages build/wheels
	$(call kept,.ci/python $(subst python-,,$@))

# pyspark comes as sources, of which pip makes the same wheel for each Python anew; this is the one that is installed.
build/wheels:
	$(BIN)pip wheel --quiet --no-deps --wheel-dir $@ "$$($(BIN)pip freeze | grep '^pyspark==')"

# The site needs none of what the project needs, and must not need another version of it.
site:
	$(BIN)pip freeze --exclude txtopo >build/tested-packages.txt
	$(BIN)uv venv --quiet --clear --python $(BIN)python build/site-builder
	$(BIN)python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' >build/site-packages.txt
	$(BIN)uv pip install --quiet --python build/site-builder -r build/site-packages.txt -c build/tested-packages.txt
	$(MAKE) --no-print-directory docs BIN=build/site-builder/bin/

docs:
	NO_MKDOCS_2_WARNING=1 $(BIN)mkdocs build --quiet --strict --site-dir build/site
	$(BIN)python -m tests.docs.site build/site

bench:
	$(BIN)python -m tests.harness.benchmarks small
