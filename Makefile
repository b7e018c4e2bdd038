# Two commands do everything: `make demo` and `make test`. Each installs what is missing, configures,
# builds with all cores and runs. CMake does the building; this file only strings the steps together.
PRESET ?= release
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)

.PHONY: all deps build demo models test asan tsan bench scale-check fuzz format clean

all: build

deps:
	@scripts/install-deps

build: deps
	@cmake --preset $(PRESET) >/dev/null
	@cmake --build --preset $(PRESET) --parallel $(JOBS)

demo: build
	@$(BUILD)/bin/clearhead demo

test: build
	@scripts/fetch-test-data $(BUILD)
	@ctest --test-dir $(BUILD) --output-on-failure

asan:
	@$(MAKE) test PRESET=asan

# What has threads: the pool, kernels, training, circuits, the page's server. Only these programs are built.
TSAN_TESTS := core_test kernels_test attention_test train_test circuits_test viewer_test
tsan: deps
	@cmake --preset tsan >/dev/null
	@cmake --build --preset tsan --parallel $(JOBS) --target $(TSAN_TESTS)
	@scripts/tsan build/tsan $(TSAN_TESTS)

# The addition pair from nothing; with TEXT="a.txt b.txt" the tale pair from your own text.
models: build
	@scripts/models $(BUILD)/bin/clearhead $(or $(FOLDER),$(BUILD)/models) $(TEXT)

bench: build
	@scripts/bench $(BUILD)

# A random model of GPT-2's size through everything: time and peak memory (15 minutes on two cores).
scale-check: build
	@scripts/scale-check $(BUILD)/bin/clearhead

# Ten minutes for each reader; SECONDS_EACH=30 for a quick look.
fuzz: deps
	@scripts/fuzz $(or $(SECONDS_EACH),600)

format:
	@git ls-files '*.cc' '*.h' | xargs clang-format -i

clean:
	@rm -rf build
