# Three commands do everything: `make demo`, `make test` and `make check`. Each installs what it needs and
# is missing, configures, builds with all cores and runs. CMake does the building; this file only strings
# the steps together. The times told are those of two cores.
PRESET ?= release
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)

# Parts that a build folder has once asked for stay on: `make demo` after `make test` changes nothing.
FIRST := $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DCLEARHEAD_TESTS=OFF -DCLEARHEAD_BENCH=OFF)
CONFIGURE = @cmake --preset $(PRESET) $(FIRST) $(1) >/dev/null
COMPILE = @cmake --build --preset $(PRESET) --parallel $(JOBS)
SAY = @echo "== $(1)"

.PHONY: all build demo models results package test check asan tsan bench scale-check fuzz format clean

all: build

# The program alone.
build:
	@scripts/install-deps build
	$(call SAY,Building the program: five minutes the first time)
	$(call CONFIGURE)
	$(COMPILE) --target clearhead

demo: build
	$(call SAY,The demo: forty seconds)
	@$(BUILD)/bin/clearhead demo

test:
	@scripts/install-deps test
	$(call SAY,Building the program and its tests: eight minutes the first time)
	$(call CONFIGURE,-DCLEARHEAD_TESTS=ON -DCLEARHEAD_PYTHON=ON)
	$(COMPILE)
	@scripts/fetch-test-data $(BUILD)
	$(call SAY,Running the tests: four minutes)
	@ctest --test-dir $(BUILD) --output-on-failure

# Everything that is said about the code without running it: scripts/check names the parts.
check:
	@scripts/install-deps test bench check
	$(call SAY,Building everything with warnings as errors: nine minutes the first time)
	$(call CONFIGURE,-DCLEARHEAD_TESTS=ON -DCLEARHEAD_BENCH=ON -DCLEARHEAD_PYTHON=ON)
	$(COMPILE)
	$(call SAY,Checking: ten minutes the first time; then only what changed)
	@scripts/check $(BUILD) $(JOBS)

asan:
	@LSAN_OPTIONS=print_suppressions=0:suppressions=$(CURDIR)/tests/lsan.supp $(MAKE) test PRESET=asan

# What has threads: the pool, kernels, training, circuits, the page's server, callers of the library, ranks. Only these programs are built.
TSAN_TESTS := core_test kernels_test attention_test train_test circuits_test viewer_test api_test mpi_test
tsan:
	@scripts/install-deps test
	@cmake --preset tsan >/dev/null
	@cmake --build --preset tsan --parallel $(JOBS) --target $(TSAN_TESTS)
	@scripts/tsan build/tsan $(TSAN_TESTS)

# Debian packages and a wheel in build/package/packages: the same bytes for the same commit (scripts/check-package shows it).
package:
	@scripts/install-deps package
	$(call SAY,Building what is packed: minutes the first time)
	@cmake --preset package >/dev/null
	@cmake --build --preset package --parallel $(JOBS)
	@scripts/package build/package

# The tables of docs/results.md that can be made of the models that ship, in place.
results: build
	@scripts/results $(BUILD)/bin/clearhead

# The addition pair from nothing; with TEXT="a.txt b.txt" the tale pair from your own text, with PAIR=deep too the deep one;
# PAIR=stories15M TEXT=models-cache/stories15M makes that model sparse from its own words.
models: build
	@scripts/models $(BUILD)/bin/clearhead $(or $(FOLDER),$(BUILD)/models) $(or $(PAIR),$(if $(TEXT),tale,addition)) $(TEXT)

bench:
	@scripts/install-deps bench
	$(call CONFIGURE,-DCLEARHEAD_BENCH=ON)
	$(COMPILE)
	@scripts/bench $(BUILD)

# Random models of GPT-2's and Llama-3.2-1B's size through everything: time and peak memory (half an hour on two cores).
scale-check: build
	@scripts/install-deps scale
	@scripts/scale-check $(BUILD)/bin/clearhead

# Ten minutes for each reader; SECONDS_EACH=30 for a quick look.
fuzz:
	@scripts/install-deps build
	@scripts/fuzz $(or $(SECONDS_EACH),600)

format:
	@git ls-files '*.cc' '*.h' | xargs clang-format -i

clean:
	@rm -rf build
