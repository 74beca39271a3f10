# What developers and CI call. The commands are those of the virtual environment beside this file, if there is one.

BIN := $(if $(wildcard .venv/bin),.venv/bin/,)
LOGS := build/tests

.PHONY: help fast test test-with-spark test-without-spark lint docs bench

help:
	@echo "make fast    the tests without Spark and without what is slow, in under two minutes"
	@echo "make test    every test, in two processes side by side; their output is kept in $(LOGS)"
	@echo "make lint    style, types and import contracts"
	@echo "make docs    the site, in build/site"
	@echo "make bench   the small benchmarks"

fast:
	$(BIN)pytest -q -m "not spark and not slow"

# The tests that share a session of Spark wait for its jobs most of the time, so others run beside them.
# If one part fails, the other still runs to its end.
test:
	@$(MAKE) --no-print-directory --keep-going --jobs=2 test-with-spark test-without-spark

test-with-spark: CHOSEN := spark
test-without-spark: CHOSEN := not spark

test-with-spark test-without-spark:
	@mkdir -p $(LOGS)
	@echo "pytest -m '$(CHOSEN)', output in $(LOGS)/$@.log"
	@$(BIN)pytest -q --durations=30 -m "$(CHOSEN)" >$(LOGS)/$@.log 2>&1; status=$$?; cat $(LOGS)/$@.log; exit $$status

lint:
	$(BIN)ruff check .
	$(BIN)ruff format --check .
	$(BIN)mypy
	$(BIN)lint-imports

docs:
	NO_MKDOCS_2_WARNING=1 $(BIN)mkdocs build --quiet --strict --site-dir build/site
	$(BIN)python -m tests.docs.site build/site

bench:
	$(BIN)python -m tests.benchmarks small
