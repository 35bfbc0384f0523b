# Parley's build. `make help` lists what a user may type. The file reads top to bottom: settings, sources,
# rules, tests. Everything built lands in build/$(VARIANT); the page's bundle in build/web.

VARIANT ?= release
PREFIX  ?= /usr/local
CUDA    ?= 0
MPI     ?= 0
B       := build/$(VARIANT)
.DEFAULT_GOAL := all
ifneq ($(CUDA)$(MPI),00)
$(error this version has the CPU backend on one rank only: leave CUDA=0 and MPI=0)
endif

# --- compiler -------------------------------------------------------------------------------------------
PKGS     := libwebsockets libuv libedit libcjson sqlite3 libpcre2-8 libutf8proc openssl zlib
CFLAGS_release := -O3 -g
CFLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS_tsan    := -O1 -g -fsanitize=thread -fno-omit-frame-pointer
# -ffp-contract=off: a fused multiply-add is written where it is meant, so that twins give the same bits.
CFLAGS   := -std=gnu17 -I. -I$(B)/gen -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla \
            -Wmissing-prototypes -Wno-unused-parameter -ffp-contract=off -fno-math-errno -pthread \
            $(CFLAGS_$(VARIANT)) $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LDFLAGS  := -pthread $(CFLAGS_$(VARIANT))
LDLIBS   := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -linih -lm -ldl
# One instruction set per file, chosen at run time (kernels/cpu/cpu.c).
$(B)/%_avx2.o:   CFLAGS += -mavx2 -mfma -mf16c
$(B)/%_avx512.o: CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
$(B)/%_amx.o:    CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mamx-tile -mamx-bf16 -mfma -mf16c

# --- sources: every .c of a layer belongs to it; main*.c are programs ---------------------------------------
LAYERS  := base kernels kvcache engine sessions ws
SRC     := $(filter-out %/main.c,$(shell find $(LAYERS) -name '*.c' | sort))
OBJ     := $(SRC:%.c=$(B)/%.o)
LIB     := $(B)/libparley.a
UNIT    := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/unit/test_*.c tests/ops/test_*.c tests/golden/test_*.c)))

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c $< -o $@
$(LIB): $(OBJ)
	@rm -f $@
	ar rcs $@ $^
$(UNIT): $(B)/tests/%: $(B)/tests/%.o $(LIB)
	$(CC) $(LDFLAGS) -o $@ $< $(LIB) -lcmocka $(LDLIBS)

# One test by name: make unit-buf runs tests/unit/test_buf.c; ops-linear and golden-models likewise.
unit-%: $(B)/tests/unit/test_% ; $<
ops-%: $(B)/tests/ops/test_% ; $<
golden-%: $(B)/tests/golden/test_% ; $<
# One part's speed: make bench-sampler runs tests/bench/bench_sampler.c.
$(B)/tests/bench/bench_kernels.o: CFLAGS += -march=native -ffp-contract=fast # it measures ceilings
$(B)/tests/bench/bench_%: $(B)/tests/bench/bench_%.o $(LIB)
	$(CC) $(LDFLAGS) -o $@ $< $(LIB) $(LDLIBS)
bench-%: $(B)/tests/bench/bench_% ; $< $(ARGS)
lib: $(LIB)

# --- the chat page: bundled by node into build/web (web/build.mjs), then embedded (web/embed.mjs) ------------
web/node_modules/.package-lock.json: web/package-lock.json
	@command -v npm >/dev/null || { echo 'The chat page is bundled with node: install nodejs and npm.' >&2; exit 1; }
	cd web && npm ci --ignore-scripts --no-audit --no-fund
build/web/index.html: web/node_modules/.package-lock.json web/build.mjs $(shell find web/src -type f 2>/dev/null)
	node web/build.mjs build/web
$(B)/gen/page_assets.c: build/web/index.html web/embed.mjs
	@mkdir -p $(@D)
	node web/embed.mjs build/web $@
PAGE := $(B)/gen/page_assets.o
$(PAGE): $(B)/gen/page_assets.c
	$(CC) $(CFLAGS) -c $< -o $@

# --- the program -------------------------------------------------------------------------------------------
PARLEY := $(B)/parley
$(PARLEY): $(B)/ws/cli/main.o $(PAGE) $(LIB)
	$(CC) $(LDFLAGS) -o $@ $< $(PAGE) $(LIB) $(LDLIBS)
all: $(PARLEY)

# --- what a user types ------------------------------------------------------------------------------------
# The packages are looked for at parse time (PKGS above), so a target that may install some starts make anew.
SUBMAKE := $(MAKE) --no-print-directory -j$(shell nproc)

run: ## build what is needed and serve the demo model at http://127.0.0.1:8080
	@configs/deps.sh build
	@$(SUBMAKE) -s all
	@exec $(PARLEY) serve --config configs/demo.ini
test: ## all tests; ends with `N passed, N failed`
	@configs/deps.sh test
	@$(SUBMAKE) -s all tests
	@tests/run.sh $(B) unit ops golden layers e2e page
check-asan: ## unit, golden and end-to-end tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@configs/deps.sh test
	@$(SUBMAKE) -s VARIANT=asan all tests
	@tests/run.sh build/asan unit ops golden e2e
check-tsan: ## the threaded tests under ThreadSanitizer
	@configs/deps.sh test
	@$(SUBMAKE) -s VARIANT=tsan all tests
	@tests/run.sh build/tsan threads e2e-threads
bench: all ## the figures of the README's table, beside llama.cpp
	@tests/bench/run.sh $(PARLEY)
format: ## clang-format on every source file
	@git ls-files '*.c' '*.h' | xargs clang-format -i
install: all ## into PREFIX (default /usr/local): program, demo model, configuration
	install -D -m 755 $(PARLEY) $(DESTDIR)$(PREFIX)/bin/parley
	install -d $(DESTDIR)$(PREFIX)/share/parley/demo-model
	install -m 644 configs/demo-model/* $(DESTDIR)$(PREFIX)/share/parley/demo-model
	sed 's|^model = .*|model = $(PREFIX)/share/parley/demo-model|' configs/demo.ini >$(DESTDIR)$(PREFIX)/share/parley/demo.ini
clean: ## remove build/
	rm -rf build
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo '  variables: VARIANT=release|asan|tsan, CUDA=0 and MPI=0 (further backends are not part of this version)'
tests: $(UNIT) $(B)/tests/fake_server
# The server on sessions without model and database, for the tests of the wire (tests/e2e/wire*.test.mjs).
$(B)/tests/fake_server: $(B)/tests/fakes/main_fake_server.o $(B)/tests/fakes/fake_sessions.o $(PAGE) $(LIB)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
-include $(shell find $(B) -name '*.d' 2>/dev/null)
.SECONDARY:
.PHONY: all lib clean run test tests check-asan check-tsan bench format install help
