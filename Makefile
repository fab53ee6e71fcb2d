# make run: the main job. make test: the tests. make packs: the tests of the packs. make browser: the page in a real browser. make slow, make slow-packs, make long, make gpu, make loggers, make engines: longer ones. make check: style, types and imports. make docs: the documentation site.
# All set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
FAST := -n 2 --dist worksteal -m "not slow and not browser and not long and not engine and not gpu"
SLOW := -n 2 --dist worksteal -m "slow and not long and not gpu"
PACKS := $(filter-out plugins/contrib/lgbench-ray,$(wildcard plugins/contrib/*))

unexport PYTHONDONTWRITEBYTECODE # or each of the hundreds of processes in the tests compiles lgbench again

.PHONY: run test packs browser slow slow-packs long gpu loggers engines check docs lowest boards directory clean

run: .venv/lgbench
	$(BIN)/lgbench run --task tomita --arch peri-norm
	$(BIN)/lgbench leaderboard --task tomita

test: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest $(FAST) --ignore plugins/contrib

# Each pack is a distribution of its own, with its own tests.
packs: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest $(FAST) plugins/contrib

# The page of `lgbench site`, in Chromium.
browser: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m browser

slow: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest $(SLOW) --ignore plugins/contrib

slow-packs: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest $(SLOW) plugins/contrib

long: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m long

# Proof that a GPU trains as a CPU does, and its pace: a report to attach to an issue.
gpu: .venv/ready
	$(BIN)/lgbench selftest --device cuda
	$(BIN)/pytest -m gpu

# The loggers that come with lgbench, each without an account. Their libraries take 280 MB.
loggers: .venv/loggers
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow tests/plugins/test_builtin_loggers.py

# Ray, and a SLURM cluster that the tests start on this machine: as root, with slurmctld, slurmd, slurm-client and munge of Debian.
engines: .venv/engines
	OMP_NUM_THREADS=1 $(BIN)/pytest -m engine

check: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# The Markdown of leaderboards/, from the runs that stand beside it.
boards: .venv/ready
	$(BIN)/python leaderboards/generate.py

# The page of known plugins, from its data.
directory: .venv/ready
	$(BIN)/python plugins/generate.py

# The documentation site in site/, with the published boards. Needs no network once .venv is there.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/mkdocs build --strict
	$(BIN)/lgbench site --results leaderboards/runs --docs .. --out site/results
	$(BIN)/python docs/_generate/check_site.py site

# The tests with the lowest versions that pyproject.toml allows, in an environment of their own. On Linux this downloads a CUDA
# build of torch, 6 GB on disk. The tests in a browser are left out: they do not depend on these versions.
LOWEST := .venv-lowest/bin
lowest:
	$(PYTHON) -m venv .venv-lowest
	$(LOWEST)/pip install --quiet uv
	$(LOWEST)/uv pip compile --quiet --resolution lowest-direct --no-annotate --no-header pyproject.toml --output-file .venv-lowest/lowest.txt
	$(LOWEST)/pip install --quiet --constraint .venv-lowest/lowest.txt --editable ".[dev]" $(PACKS:%=--editable %)
	$(LOWEST)/pip install --quiet --no-deps --editable plugins/contrib/lgbench-ray
	OMP_NUM_THREADS=1 PATH="$(CURDIR)/$(LOWEST):$$PATH" $(LOWEST)/python -m pytest -m "not slow and not browser and not long and not engine and not gpu"

clean:
	rm -rf .venv .venv-lowest

.venv/lgbench: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lgbench needs Python 3.11 or later, $(PYTHON) is " + sys.version.split()[0] + "; name another with make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

# What only tests, checks and documentation need.
.venv/ready: .venv/lgbench $(PACKS:%=%/pyproject.toml)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,docs]" $(PACKS:%=--editable %)
	$(BIN)/pip install --quiet --no-deps --editable plugins/contrib/lgbench-ray
	touch $@

.venv/loggers: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[mlflow,tensorboard,trackio,wandb]"
	touch $@

# Ray takes 250 MB: only the tests that need it install it. Its pack imports it when a command asks for Ray.
.venv/engines: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable plugins/contrib/lgbench-ray
	touch $@
