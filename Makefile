# make demo    a portrait through `show` and `privatize`
# make check   ruff and the tests of the core, without PyTorch, Ray or Arrow: run it after every edit
# make test    ruff, mypy --strict, all tests with branch coverage: CI runs it
# make docs    build the documentation in site/; warnings are errors
# make dist    build the sdist and the wheel in dist/
# make fuzz    attack the commands with random input, for ten minutes and with a new seed
# make page    build the page: needs Node with `npm install` in web/, clang 19 and lld 19
# make bench   speed, memory, files, small images, the page; writes benchmarks/RESULTS.md
# make clean   remove everything that make created

PYTHON ?= python3
BIN := .venv/bin
CORE_TESTS := $(wildcard tests/test_*.py) tests/rooms
SETTINGS := pyproject.toml setup.py $(wildcard src/ldp_slicing/_kernel*.[ch])

.PHONY: demo check test docs dist fuzz bench vectors clean
.DELETE_ON_ERROR:

demo: .venv/installed
	rm -rf demo && mkdir demo
	$(BIN)/ldp-slicing doctor
	$(BIN)/ldp-slicing plan --epsilon 2.4 --size 512x512 --max-side 112
	$(BIN)/ldp-slicing show examples/astronaut.jpg --out demo/sheet.png
	$(BIN)/ldp-slicing privatize examples/astronaut.jpg demo/release.png --epsilon 2.4 --max-side 112 --ledger demo/ledger.sqlite
	@echo
	@echo "demo/sheet.png       what the mechanism does to the portrait; for the owner only"
	@echo "demo/release.png     the release, an ordinary image"
	@echo "demo/release.png.card.json   the promise about the release"

check: .venv/installed-for-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pytest --numprocesses 2 $(CORE_TESTS)

test: .venv/installed-for-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses 2 --dist loadfile --cov --cov-report=term-missing -rs

docs: .venv/installed-for-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

dist: .venv/installed-for-dist
	$(BIN)/python -m build --no-isolation --outdir dist

fuzz: .venv/installed-for-test
	FUZZ_SECONDS=600 FUZZ_KILLS=60 FUZZ_SEED=$$(date +%s) $(BIN)/pytest -o faulthandler_timeout=3600 tests/fuzz tests/power tests/release/test_crashes.py

page: .venv/installed
	$(BIN)/python web/make_words.py
	web/kernel/build
	cd web && npm run --silent check && npm run --silent build

bench: .venv/installed-for-bench
	$(BIN)/python -m benchmarks.run

vectors: .venv/installed-for-test
	$(BIN)/python -m tests.make_vectors

.venv/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	touch $@

.venv/installed: .venv/python $(SETTINGS)
	$(BIN)/pip install --quiet --editable .
	touch $@

.venv/installed-for-%: .venv/installed
	$(BIN)/pip install --quiet --editable '.[$*]'
	touch $@

clean:
	rm -rf .venv demo site build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache src/*.egg-info src/ldp_slicing/*.so
	find . -name __pycache__ -prune -exec rm -rf {} +
