# Parley's build. `make help` lists what a user may type. The file reads top to bottom: settings, sources,
# rules, tests. Everything built lands in build/$(VARIANT); the page's bundle in build/web.

VARIANT ?= release
PREFIX  ?= /usr/local
B       := build/$(VARIANT)
.DEFAULT_GOAL := all

# --- compiler -------------------------------------------------------------------------------------------
PKGS     := libwebsockets libuv libcjson sqlite3 libpcre2-8 libutf8proc openssl zlib
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
lib: $(LIB)
clean: ; rm -rf build
-include $(shell find $(B) -name '*.d' 2>/dev/null)
.SECONDARY:
.PHONY: all lib clean
