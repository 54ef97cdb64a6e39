# SPDX-License-Identifier: Apache-2.0
#
# The front door: `make` lists the rooms. Building is CMake's (CMakePresets.json); every target
# here is a line or two that calls CMake or a program of tools/, so that none needs this file.
#
#     make test T=sched     only test programs whose name contains "sched"
#     make demo TEXT=FILE   train on your own text
#     make fuzz INPUTS=N    N damaged inputs instead of a million
#     make stops STOPS=N    N stopped ranks of each kind instead of 100
#     make stopped THIRD=2  and 3: the runs of processes that THIRD=1, the default, leaves out
#     make mutants K=WORD   only faults whose name or file has the word
#     JOBS=N                at most N compilers or test programs at once

.DEFAULT_GOAL := help
.PHONY: help build deps demo test test-mpi grid fuzz fuzz-config stops signals check lint asan tsan
.PHONY: alone pairs reshard saves stopped judges test-cuda bench format golden hdr-check clean
.PHONY: golden-sched mutants size

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
T ?=
INPUTS ?= 1000000
STOPS ?= 100
THIRD ?= 1
export JOBS

only = $(if $(T),-R '$(T)')

# $(call compile,PRESET,FOLDER): configure quietly, then build.
define compile
@mkdir -p $(2)
@cmake --preset $(1) > $(2)/configure.log 2>&1 || { cat $(2)/configure.log >&2; exit 1; }
@grep -e '^-- plait:' $(2)/configure.log
@cmake --build $(2) -j $(JOBS)
endef

help: ## this list
	@echo 'plait: train transformers over many ranks, and know beforehand what it costs'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile
	@echo
	@echo 'make test T=NAME runs the test programs whose name contains NAME; docs/ has the rest.'

deps:
	@tools/deps.sh build

build: deps ## the program, build/plait, and everything that belongs to it
	$(call compile,release,build)

demo: build ## train a small model on four ranks, and let it write (TEXT=FILE: 200 KB or more)
	@tools/demo.sh $(if $(TEXT),'$(TEXT)')

test: build ## build, then every test; the last line is the sum
	@tools/run-tests build $(only)

test-mpi: build ## the tests that run under mpirun
	@tools/run-tests build -L mpi $(only)

check: ## all that CI runs, in its order
	@.ci/run

lint: build ## the layer law, names, banned calls, budgets
	@tools/deps.sh lint
	@tools/lint --self-test
	@tools/lint --build build
	@tools/mutants --check

size: ## lines of each folder and its budget
	@tools/lint --size

asan: deps ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(call compile,asan,build-asan)
	@tools/run-tests build-asan -LE mpi $(only)

# ThreadSanitizer of older compilers does not start where addresses are widely randomised. Left out
# are the longest tests whose threads do what they do in test_law, test_loops and test_run: of
# schedules and cuts of stages, of keys, of what runs are read from and leave, of judges.
NO_TSAN = ways|recompute_law|test_split|test_record$$|keys|test_init$$|judge|export|folder$$
NO_TSAN := $(NO_TSAN)|folder_room|metrics|generate$$|oracle|nonfinite_saved|traffic|vlaw|search
NO_TSAN := $(NO_TSAN)|chunks|reshard
tsan: deps ## the tests of threads that communicate, under ThreadSanitizer
	$(call compile,tsan,build-tsan)
	@$(shell setarch -R true 2>/dev/null && echo setarch -R) \
	    tools/run-tests build-tsan -R '$(or $(T),comm|dist|fuzz_config|state_fill|fs_places)' \
	    -E '$(if $(T),^$$,$(NO_TSAN))'

grid: build ## gradients over every shape of the schedules (make test takes a part)
	@PLAIT_GRID=whole tools/run-tests build -R '$(or $(T),dist/test_(loops|recompute))'

fuzz: deps ## a million damaged schedules, and checkpoints, under AddressSanitizer (INPUTS=N)
	$(call compile,asan,build-asan)
	@PLAIT_FUZZ=$(INPUTS) ASAN_OPTIONS=quarantine_size_mb=16 build-asan/tests/test_fuzz_sched
	@PLAIT_FUZZ=$$(($(INPUTS) / 20 + 1)) ASAN_OPTIONS=quarantine_size_mb=16 \
	    build-asan/tests/test_fuzz_state

judges: build ## folders read and left, judged by transformers 4.57 and 5.24 (7 GB of pip)
	@tests/oracle/judges.sh build/plait

fuzz-config: build ## 300 random configurations against one rank, 3000 that are refused (N: of each)
	@PLAIT_FUZZ_CONFIG=$(or $(RUNS),$(N),300) build/tests/test_fuzz_config
	@PLAIT_FUZZ_CONFIG=$(or $(N),3000) build/tests/test_advice

alone: build ## each case of each test program in a process of its own (K=WORD: some programs)
	@tests/harness/alone.sh build/tests $(K)

signals: build ## runs that are told to stop at drawn moments, as threads and processes
	@PLAIT_SIGNALS=100 build/tests/test_signals

pairs: build ## two runs in one folder at once, as threads and processes (N=18: of each; SEED=N)
	@tests/fault/pairs.sh build/plait $(or $(N),18) $(SEED)

reshard: build ## checkpoints of ten layouts, each resumed on the nine others, in each type
	@PLAIT_RESHARD=1 build/tests/test_reshard

saves: build ## every file call of a save killed, failing, cut off the power; then the run goes on
	@PLAIT_SAVES=1 build/tests/test_saves
	@PLAIT_SAVES=1 build/tests/test_power

stopped: build ## runs stopped at each step, in each way, on eight layouts; then they go on
	@PLAIT_STOPPED=$(THIRD) build/tests/test_stopped

stops: build ## ranks that stop or die at random moments, as threads and processes; slow disks
	@PLAIT_STOPS=$(STOPS) build/tests/test_stops
	@tests/fault/stops.sh build/plait $(STOPS)
	@tests/fault/slow_disk.sh build/plait build/tests/slow_disk.so mpi all

mutants: deps ## plant faults one at a time: a test must find each (K=WORD: some)
	@tools/deps.sh lint
	@tools/mutants $(if $(K),-k '$(K)')

test-cuda: build ## the tests that need a GPU, on a machine that has one
	@BUILD=build tools/gpu.sh test

bench: build ## speed, beside PyTorch where it can be imported
	@tools/bench.sh

format: ## clang-format over the lines changed since BASE (HEAD), but for tables
	@tools/format $(BASE)

golden: build ## write the golden files anew and show what changed, for a person to accept
	@PLAIT_GOLDEN=write tools/run-tests build -L golden $(only)
	@git --no-pager diff --stat -- tests/golden
	@git --no-pager diff -- tests/golden

# An own list told apart from the reference lists of others: tests/golden/sched/own.
golden-sched: build ## write the list of an own schedule: NAME=gpipe P=4 M=6 [V=1] [GROUP=0]
	@tools/golden-sched build/plait tests/golden/sched '$(NAME)' '$(P)' '$(M)' '$(V)' '$(GROUP)'

hdr-check: deps ## each header compiles alone; plait.h in C99 and C++98 too
	@tools/hdr-check

clean: ## remove all build folders
	rm -rf build build-*
