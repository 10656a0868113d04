# Every target sets up what it needs: `make demo` and `make test` work from a fresh clone.
# Another interpreter: make demo PYTHON=python3.12. More for pytest: make test PYTEST_ARGS=-x.

PYTHON ?= python3
PYTEST_ARGS ?= -n 2 --dist worksteal
PKG_CONFIG ?= pkg-config
MINUTES ?= 10

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
INSTALL := $(PIP) install -q -c constraints.txt --build-constraint constraints.txt

# Stamps: a step is repeated only when pyproject.toml or constraints.txt changed.
CREATED := $(VENV)/.created
CORE := $(VENV)/.core-installed
FULL := $(VENV)/.full-installed
PEERS := $(VENV)/.peers-installed
DOCS := $(VENV)/.docs-installed
FUZZ := $(VENV)/.fuzz-installed
MDS := $(VENV)-mds/.installed
FFCV := $(VENV)-ffcv/.installed

# Campaigns beside `make campaign`: `make campaign-NAME` runs tests/campaign_NAME.py.
CAMPAIGNS := $(patsubst tests/campaign_%.py,campaign-%,$(wildcard tests/campaign_*.py))
CAMPAIGN_ARGS ?=

.DELETE_ON_ERROR:
.PHONY: help setup demo test suite turbojpeg strace file-systems campaign $(CAMPAIGNS) lint bench faults docs dist dist-test wheels clean

help:
	@echo "make demo       pack, verify and read photographs, beside Parquet (core packages only)"
	@echo "make test       ruff, mypy and the whole test suite, with every extra"
	@echo "make lint       ruff and mypy alone"
	@echo "make campaign   damage slabs for MINUTES=10, and look how they are read"
	@awk 'FNR == 1 { name = FILENAME; gsub(/.*campaign_|[.]py$$/, "", name); sub(/^"""/, ""); \
		sub(/: `make .*/, ""); printf "make campaign-%s\n                %s\n", name, $$0 }' tests/campaign_*.py
	@echo "make bench      measure this checkout on this machine, beside its peers; QUICK=1: roughly"
	@echo "make faults     damage files of fieldslab and its peers, and look how they are read"
	@echo "make docs       build the documentation as a site in build/docs; warnings are errors"
	@echo "make dist-test  build sdist and wheel, and try both elsewhere"
	@echo "make wheels     build a wheel for all machines, and those that bring machine code"
	@echo "make setup      only prepare $(VENV) with every extra and the test tools"
	@echo "make clean      remove $(VENV), build/ and the tools' caches"

setup: $(FULL)

demo: $(CORE)
	@mkdir -p build
	$(BIN)/fieldslab pack examples/photos.parquet -o build/photos.slab --nulls weight=mask --force
	$(BIN)/fieldslab verify build/photos.slab
	$(BIN)/python examples/demo.py examples/photos.parquet build

# mypy has one core; beside the tests, the other one is not idle.
test: turbojpeg
	@$(MAKE) --no-print-directory -j2 lint suite

# Test processes share the cores: torch's threads would only get in each other's way. They start
# hundreds of programs, which would each compile fieldslab if its bytecode were not kept. Kernels are
# compiled first: both test processes would otherwise compile the same ones at the same time.
suite: $(FULL)
	$(BIN)/python -m fieldslab warm --images
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

# The tests want libjpeg-turbo of both generations: 3 comes with the test tools, 2 from the system.
turbojpeg: $(FULL)
	@$(BIN)/python -c 'import sys; from fieldslab.schemas.codecs.turbolibrary import find_libraries; \
		sys.exit(all(library.regions for library in find_libraries()))' || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get -qq update && apt-get -qqy install libturbojpeg0; } || { \
		echo "The tests need libjpeg-turbo 2.x: apt install libturbojpeg0, as root" >&2; exit 1; }

campaign: $(FULL)
	$(BIN)/python -m tests.campaign --minutes $(MINUTES)

campaign-power: strace
strace:
	@command -v strace >/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get -qq update && apt-get -qqy install strace; } || { \
		echo "This campaign needs strace: apt install strace, as root" >&2; exit 1; }

# This one makes file systems in images, which takes root.
campaign-disks: file-systems
file-systems:
	@command -v mkfs.ext4 mkfs.xfs mkfs.btrfs | [ "$$(wc -l)" = 3 ] || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get -qq update && apt-get -qqy install e2fsprogs xfsprogs btrfs-progs; } || { \
		echo "This campaign needs mkfs.ext4, mkfs.xfs and mkfs.btrfs:" \
			"apt install e2fsprogs xfsprogs btrfs-progs, as root" >&2; exit 1; }

# CAMPAIGN_ARGS="--state FILE.json --publish", and other options that the program has.
$(CAMPAIGNS): campaign-%: $(FULL)
	$(BIN)/python -m tests.campaign_$* --minutes $(MINUTES) $(CAMPAIGN_ARGS)

campaign-fuzz: $(FUZZ)

lint: $(FULL)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# A quick run leaves out fieldslab against its own parts, and decoding beside FFCV.
bench: $(PEERS) $(MDS) $(FFCV)
	@mkdir -p build
	$(BIN)/fieldslab pack examples/photos.parquet -o build/photos.slab --nulls weight=mask --force
	$(BIN)/fieldslab bench build/photos.slab --report build/bench \
		$(if $(QUICK),--quick,--seconds 15)
	$(BIN)/python -m fieldslab.bench.images --readme $(if $(QUICK),--quick)
	$(BIN)/python -m fieldslab.bench.peers --readme $(if $(QUICK),--quick)
	$(BIN)/python -m fieldslab.bench.remote $(if $(QUICK),--quick,--readme)
ifndef QUICK
	cp build/bench/throughput.png bench/results/bench.png
	$(BIN)/python -m fieldslab.bench --readme
	$(BIN)/python -m fieldslab.bench.peers.decode --readme
endif

# What fieldslab and its peers do with damaged files: rewrites the table in docs/explanation/faults.md.
faults: $(PEERS) $(MDS) $(FFCV)
	$(BIN)/python -m fieldslab.bench.peers.faults

# Code of the pages is run by `make test`; here only that of the notebooks, for what they show.
docs: $(DOCS)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

# The wheel is built from the sdist, so both are known to be complete.
dist: $(FULL)
	rm -rf build/dist
	$(BIN)/python -m build --outdir build/dist
	@ls -l build/dist

# Beside the wheel for all machines, one with machine code for each of those that it is known for.
wheels: dist
	for machine in linux-x86_64 linux-aarch64 darwin-arm64; do \
		FIELDSLAB_MACHINE_CODE=$$machine $(BIN)/python -m build --wheel --outdir build/dist || exit 1; \
	done

# The wheel is tried away from the checkout and isolated (-I), so that nothing else can be imported;
# in the unpacked sdist, tests run that need its links, its documents and its other files.
dist-test: dist
	rm -rf build/dist-test
	mkdir -p build/dist-test/sdist
	tar -xzf build/dist/*.tar.gz -C build/dist-test/sdist --strip-components=1
	cd build/dist-test/sdist && PYTHONPATH="$$PWD/.ns" "$(CURDIR)/$(BIN)/python" -m pytest -q -n 0 \
		tests/test_packaging.py tests/test_layers.py tests/test_cpp.py tests/schemas \
		tests/bench/test_readme_tables.py
	$(BIN)/python -m venv build/dist-test/venv
	build/dist-test/venv/bin/python -m pip install -q -c constraints.txt build/dist/*.whl
	cp tests/smoke.py build/dist-test/smoke.py
	cd "$${TMPDIR:-/tmp}" && "$(CURDIR)/build/dist-test/venv/bin/python" -I \
		"$(CURDIR)/build/dist-test/smoke.py"

clean:
	rm -rf $(VENV) $(VENV)-mds $(VENV)-ffcv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find packer reader schemas bench docs tests examples -name __pycache__ -prune -exec rm -rf {} +

$(CREATED):
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "'$(PYTHON)' was not found: install Python 3.11 or newer, or name it:" \
			"make ... PYTHON=/path/to/python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "fieldslab needs Python 3.11 or newer, but '$(PYTHON)' is" \
			"$$("$(PYTHON)" --version 2>&1). Name another: make ... PYTHON=python3.12" >&2; \
		exit 1; }
	@echo "Creating $(VENV)"
	@"$(PYTHON)" -m venv $(VENV) || { \
		rm -rf $(VENV); \
		echo "No virtual environment could be made. On Debian and Ubuntu:" \
			"apt install python3-venv" >&2; exit 1; }
	@$(PIP) install -q -U -c constraints.txt pip
	@touch $@

$(CORE): pyproject.toml constraints.txt | $(CREATED)
	@echo "Installing fieldslab and its core packages into $(VENV); a minute the first time"
	@$(INSTALL) -e .
	@touch $@

$(FULL): $(CORE)
	@echo "Installing every extra and the test tools into $(VENV); some minutes the first time"
	@$(INSTALL) -e '.[all]' --group dev
	@touch $@

$(PEERS): $(FULL)
	@echo "Installing the peers that fieldslab is compared with into $(VENV)"
	@$(INSTALL) -e '.[all,peers]' --group dev
	@touch $@

$(FUZZ): $(FULL)
	@echo "Installing the fuzzer into $(VENV)"
	@$(INSTALL) -e '.[all]' --group dev --group fuzz
	@touch $@

$(DOCS): $(FULL)
	@echo "Installing Sphinx and what the site needs into $(VENV)"
	@$(INSTALL) -e '.[all]' --group dev --group docs
	@touch $@

# What cannot be installed is missing in the tables, which say so.
$(MDS): bench/peers/mds.txt | $(CREATED)
	@echo "Installing MosaicML Streaming into $(@D), apart for its older packages"
	@$(BIN)/python -m venv $(@D)
	@$(@D)/bin/python -m pip install -q -r $< || echo "It could not be installed." >&2
	@touch $@

# FFCV is built from source, and only where the libraries that it is built with are there already.
$(FFCV): bench/peers/ffcv.txt | $(CREATED)
	@if ! $(PKG_CONFIG) --exists opencv4 libturbojpeg; then \
		echo "FFCV is left out: it is built with OpenCV and libjpeg-turbo. On Debian and Ubuntu:" \
			"apt install g++ pkg-config python3-dev libopencv-dev libturbojpeg0-dev" >&2; \
	else \
		echo "Building FFCV in $(@D), some minutes"; \
		$(BIN)/python -m venv $(@D) && $(@D)/bin/python -m pip install -q -r $< && touch $@ || \
			echo "It could not be installed." >&2; \
	fi
