# Parley's build. `make help` lists what a user may type. The file reads top to bottom: settings, sources,
# rules, tests. Everything built lands in build/$(VARIANT); the page's bundle in build/web.

VARIANT ?= release
PREFIX  ?= /usr/local
# GPUs: CUDA=1 if nvcc and its headers are found, unless it is set; builds with sanitizers are for the host alone.
# nvcc says where its headers and libraries are, because the one on PATH may be a script that calls it.
NVCC    ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA_HOME := $(if $(NVCC),$(realpath $(shell $(NVCC) --dryrun -x cu -c /dev/null 2>&1 | sed -n 's/^\#$$ TOP=//p')))
CUDA_INCLUDE := $(if $(CUDA_HOME),$(patsubst %/cuda_runtime_api.h,%,$(firstword $(wildcard \
                  $(CUDA_HOME)/include/cuda_runtime_api.h $(CUDA_HOME)/targets/x86_64-linux/include/cuda_runtime_api.h))))
CUDA    ?= $(if $(CUDA_INCLUDE),$(if $(filter release,$(VARIANT)),1,0),0)
CUDA_ARCHS ?= sm_90
OTHER_ARCHS ?= sm_80 sm_89 sm_100 sm_120
# gRPC: GRPC=1 where its libraries and the compiler of messages are found.
GRPC_PKGS := grpc libprotobuf-c
GRPC    ?= $(if $(filter archs,$(VARIANT)),0,$(shell command -v protoc-c >/dev/null 2>&1 && pkg-config --exists $(GRPC_PKGS) 2>/dev/null && echo 1 || echo 0))
B       := build/$(VARIANT)
.DEFAULT_GOAL := all
ifeq ($(filter release asan tsan fuzz archs,$(VARIANT)),)
$(error VARIANT=$(VARIANT): there are release, asan, tsan and fuzz)
endif
ifneq ($(filter-out 0 1,$(CUDA)),)
$(error CUDA=$(CUDA): it is 0 or 1)
endif
ifneq ($(filter-out 0 1,$(GRPC)),)
$(error GRPC=$(GRPC): it is 0 or 1)
endif
# Ranks: MPI=1 where Open MPI's mpicc is found, and not for the sanitizers and fuzzers unless asked for.
MPICC   ?= $(firstword $(shell command -v mpicc 2>/dev/null))
MPI     ?= $(if $(MPICC),$(if $(filter release,$(VARIANT)),1,0),0)
ifneq ($(filter-out 0 1,$(MPI)),)
$(error MPI=$(MPI): it is 0 or 1)
endif

# --- compiler -------------------------------------------------------------------------------------------
# ccache where it is installed and works, unless a compiler is named.
CCACHE := $(shell command -v ccache >/dev/null 2>&1 && ccache gcc -E -x c /dev/null >/dev/null 2>&1 && echo 'ccache ')
ifeq ($(origin CC),default)
CC := $(if $(CCACHE),ccache gcc,cc)
endif
# The same bytes from every folder: neither debug information nor __FILE__ has the folder's own path.
PREFIX_MAP := -ffile-prefix-map=$(CURDIR)=.
PKGS     := libwebsockets libuv libedit libcjson libcurl sqlite3 libpcre2-8 libutf8proc openssl zlib
CFLAGS_release := -O3 -g
# The sanitizers' builds are three of the four that .ci/run waits for. -g1 has what their reports show: functions and
# lines. What a null pointer, a pointer past its object and one that wrapped round point at is found by
# AddressSanitizer where it is used; looking for it at every expression as well takes twice the compiler's time. What
# reads hostile input has those checks too, in the fuzz targets.
CFLAGS_asan    := -O1 -g1 -fsanitize=address,undefined -fno-sanitize=null,object-size,pointer-overflow \
                  -fno-sanitize-recover=undefined -fno-omit-frame-pointer -DPARLEY_DEBUG_KV
CFLAGS_tsan    := -O1 -g1 -fsanitize=thread -fno-omit-frame-pointer
CFLAGS_fuzz    := -O1 -g1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -Wno-missing-field-initializers
# -ffp-contract=off: a fused multiply-add is written where it is meant, so that twins give the same bits.
CFLAGS   := -std=gnu17 -I. -I$(B)/gen -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla \
            -Wmissing-prototypes -Wno-unused-parameter -ffp-contract=off -fno-math-errno -pthread \
            $(PREFIX_MAP) $(CFLAGS_$(VARIANT)) $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
# As gcc does without a sanitizer: a program loads what it uses. Under AddressSanitizer test_utf8 loaded 100 libraries
# instead of 9, in 80 ms of processor time.
LDFLAGS  := -pthread -Wl,--as-needed $(CFLAGS_$(VARIANT))
# What few runs use is loaded when they do (base/lazy.h): linked, it takes 53 of the 92 ms of processor time of a start.
# The fuzz targets link it: their library has not all sources.
soname   = $(shell objdump -p "$$(gcc -print-file-name=lib$(1).so)" 2>/dev/null | awk '$$1 == "SONAME" {print $$2}')
LAZY_LIBS := -lcurl $(if $(filter 1,$(GRPC)),-lgrpc -lgpr)
LDLIBS   := $(shell pkg-config --libs $(filter-out libcurl,$(PKGS)) 2>/dev/null) -linih -lm -ldl $(if $(filter fuzz,$(VARIANT)),$(LAZY_LIBS))
$(B)/ws/hub/curl_lazy.o: CFLAGS += -DCURL_SONAME='"$(call soname,curl)"'
$(B)/ws/kserve/grpc/grpc_lazy.o: CFLAGS += -DGRPC_SONAME='"$(call soname,grpc)"'
# One instruction set per file, chosen at run time (kernels/cpu/cpu.c).
$(B)/%_avx2.o:   CFLAGS += -mavx2 -mfma -mf16c
$(B)/%_avx512.o: CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
$(B)/%_bf16.o:   CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mfma -mf16c
$(B)/%_vnni256.o: CFLAGS += -mavx2 -mfma -mf16c -mavxvnni
$(B)/%_vnni512.o: CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c
$(B)/%_amx.o:    CFLAGS += -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mavx512vnni \
                 -mamx-tile -mamx-bf16 -mamx-int8 -mfma -mf16c

# Under a sanitizer, tests mostly wait for the arithmetic, which takes half as long with -O2. With checks of scopes,
# vectors of sums would be in memory instead of registers, and the program three times as slow. The loops for AVX2 and
# AVX-512 are the text of kernels_portable.c, which UndefinedBehaviorSanitizer checks.
$(B)/kernels/cpu/%.o: CFLAGS += $(if $(filter asan tsan,$(VARIANT)),-O2) \
                      $(if $(filter asan,$(VARIANT)),-fno-sanitize-address-use-after-scope)
$(B)/kernels/cpu/kernels_avx2.o $(B)/kernels/cpu/kernels_avx512.o: \
    CFLAGS += $(if $(filter asan,$(VARIANT)),-fno-sanitize=undefined)

# Full debug information of vectorised loops shows a debugger little and takes two fifths of their compilation.
$(B)/kernels/cpu/%.o: CFLAGS += -g1
# What a test does itself need not be fast, but for the ops' plain twins; its compilation is a third of a build's
# otherwise. test_linear_groups includes kernels: 11 s to compile with -O1, 1.3 s without, and half a second more to run.
$(B)/tests/%.o:       CFLAGS += -O0 -g1
$(B)/tests/ops/%.o:   CFLAGS += -O1
$(B)/tests/ops/test_linear_groups.o $(B)/tests/ops/test_linear_groups8.o: CFLAGS += -O0
$(B)/tests/bench/%.o: CFLAGS += -O3

ifeq ($(MPI),1)
ifeq ($(MPICC),)
$(error MPI=1, but no mpicc is found: install libopenmpi-dev and openmpi-bin, or say MPI=0)
endif
MPI_FLAGS := -DPARLEY_MPI=1 $(patsubst -I%,-isystem %,$(shell $(MPICC) --showme:compile))
LDLIBS    += $(shell $(MPICC) --showme:link)
endif

# --- CUDA: the runtime is linked in, the driver and cuBLASLt are looked for when a GPU is opened, so that
# one program runs with and without them. The host's side is C, the kernels are C++17.
ifeq ($(CUDA),1)
ifeq ($(CUDA_INCLUDE),)
$(error CUDA=1, but no nvcc with cuda_runtime_api.h beside it is found: name it with NVCC=/path/to/nvcc, or say CUDA=0)
endif
CUDA_FLAGS := -DPARLEY_CUDA=1 -isystem $(CUDA_INCLUDE)
# NCCL: NCCL=1 where its header is found; the library is looked for when ranks are opened.
NCCL_INCLUDE := $(patsubst %/nccl.h,%,$(firstword $(wildcard $(CUDA_INCLUDE)/nccl.h $(CUDA_HOME)/include/nccl.h \
                  /usr/include/nccl.h /usr/local/include/nccl.h)))
NCCL     ?= $(if $(NCCL_INCLUDE),1,0)
ifeq ($(NCCL),1)
ifeq ($(NCCL_INCLUDE),)
$(error NCCL=1, but no nccl.h is found: install libnccl-dev, or say NCCL=0)
endif
CUDA_FLAGS += -DPARLEY_NCCL=1 -isystem $(NCCL_INCLUDE)
else ifneq ($(NCCL),0)
$(error NCCL=$(NCCL): it is 0 or 1)
endif
CUDA_COMMA := ,
# nvcc names symbols by chance and after its temporary files, and line numbers (for profilers) come with the times of the
# source files. REPRODUCIBLE=1, for packages: no line numbers, and the same names in every build in the same folder; nvcc
# takes the folder's path into some of them.
ifeq ($(REPRODUCIBLE),1)
NVCC_PARTS = $@.parts
NVCC_NAMES = -frandom-seed=$< -keep -keep-dir $(NVCC_PARTS)
else
NVCC_LINES := -lineinfo
endif
NVCCFLAGS := -std=c++17 -O3 -I. $(foreach a,$(CUDA_ARCHS),-gencode=arch=$(a:sm_%=compute_%)$(CUDA_COMMA)code=$(a)) \
             $(NVCC_LINES) -Xcompiler $(PREFIX_MAP),-Wall,-Wextra,-Wno-unused-parameter,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
NVCC_RUN := $(filter %ccache,$(firstword $(CC))) $(NVCC)
CUDA_LIBS := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a \
               $(CUDA_HOME)/targets/x86_64-linux/lib/libcudart_static.a)) -lrt
else
CUDA_FLAGS :=
CUDA_LIBS  :=
endif
LDLIBS += $(CUDA_LIBS)

# --- gRPC: protoc-c generates the C code of the messages. gRPC itself is loaded when a server has a port for it.
GRPC_SRC := $(wildcard ws/kserve/grpc/*.c)
ifeq ($(GRPC),1)
GRPC_GONE := ws/kserve/grpc/absent.c
GRPC_GEN  := $(B)/gen/ws/kserve/grpc/inference.pb-c.o
LDLIBS    += -lprotobuf-c
else
GRPC_GONE := $(filter-out %/absent.c,$(GRPC_SRC))
GRPC_GEN  :=
endif
$(B)/gen/%.pb-c.c: %.proto
	@mkdir -p $(B)/gen
	protoc-c --c_out=$(B)/gen $<
$(GRPC_GEN): %.o: %.c
	$(CC) $(CFLAGS) -MMD -MP -c $< -o $@
$(GRPC_SRC:%.c=$(B)/%.o) $(B)/tests/fuzz/fuzz_grpc.o: $(GRPC_GEN)

# --- sources: every .c of a layer belongs to it; main*.c are programs ---------------------------------------
LAYERS  := base kernels kvcache engine sessions ws
SRC     := $(filter-out %/main.c $(GRPC_GONE) $(if $(filter 1,$(CUDA)),,kernels/cuda/%),$(shell find $(LAYERS) -name '*.c' | sort))
KERNELS := $(if $(filter 1,$(CUDA)),$(wildcard kernels/cuda/*.cu))
OBJ     := $(SRC:%.c=$(B)/%.o) $(KERNELS:%.cu=$(B)/%.cu.o) $(GRPC_GEN)
LIB     := $(B)/libparley.a
UNIT    := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/unit/test_*.c tests/ops/test_*.c tests/golden/test_*.c)))
UNIT    := $(if $(filter 1,$(CUDA)),$(UNIT),$(foreach u,$(UNIT),$(if $(findstring /test_cuda_,$(u)),,$(u))))

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c $< -o $@
$(B)/%.cu.o: %.cu
	@mkdir -p $(@D) $(NVCC_PARTS)
	$(NVCC_RUN) $(NVCCFLAGS) $(NVCC_NAMES) -MMD -MP -c $< -o $@
	@rm -rf $(NVCC_PARTS)
# What only sm_90a has (kernels/cuda/hopper.cuh): the same devices, and their own instructions.
HOPPER := $(if $(KERNELS),$(shell grep -l PARLEY_SM90A $(KERNELS)))
$(HOPPER:%.cu=$(B)/%.cu.o): \
    NVCCFLAGS := $(subst _90$(CUDA_COMMA),_90a$(CUDA_COMMA),$(NVCCFLAGS:%sm_90=%sm_90a))
# Other architectures are other objects.
CUDA_MADE_FOR := $(B)/cuda-for-$(subst $() $(),+,$(sort $(CUDA_ARCHS)))
$(CUDA_MADE_FOR):
	@mkdir -p $(@D)
	@rm -f $(B)/cuda-for-*
	@touch $@
$(KERNELS:%.cu=$(B)/%.cu.o) $(B)/tests/gpu/trap.fatbin: $(CUDA_MADE_FOR)
# Whether there is CUDA is known to one file, and to the library's list of objects.
$(B)/cuda-$(CUDA):
	@mkdir -p $(@D)
	@rm -f $(B)/cuda-0 $(B)/cuda-1
	@touch $@
$(B)/engine/device.o $(B)/kernels/cuda/%.o $(B)/tests/%.o: CFLAGS += $(CUDA_FLAGS)
$(B)/engine/device.o: CFLAGS += -DPARLEY_CUDA_ARCHS='"$(CUDA_ARCHS)"'
$(B)/engine/device.o: $(B)/cuda-$(CUDA) $(CUDA_MADE_FOR)
# Whether there is gRPC is known to the library's list of objects alone.
$(B)/grpc-$(GRPC):
	@mkdir -p $(@D)
	@rm -f $(B)/grpc-0 $(B)/grpc-1
	@touch $@
$(B)/nccl-$(NCCL):
	@mkdir -p $(@D)
	@rm -f $(B)/nccl-0 $(B)/nccl-1
	@touch $@
$(B)/kernels/cuda/nccl.o: $(B)/nccl-$(NCCL)
$(B)/mpi-$(MPI):
	@mkdir -p $(@D)
	@rm -f $(B)/mpi-0 $(B)/mpi-1
	@touch $@
MPI_OBJ := $(addprefix $(B)/engine/dist/,comm.o comm_mpi.o mpi_posts.o mpi_process.o mpi_wait.o)
$(MPI_OBJ) $(B)/tests/%.o: CFLAGS += $(MPI_FLAGS)
$(MPI_OBJ): $(B)/mpi-$(MPI)
$(LIB): $(OBJ) $(B)/cuda-$(CUDA) $(B)/grpc-$(GRPC) $(B)/mpi-$(MPI)
	@rm -f $@
	ar rcs $@ $(OBJ)
# Hundreds of programs with the whole library: the fastest linker that is here. gold, which comes with binutils, takes
# 0.13 s of processor time for test_ring, ld 0.16 s and lld 0.17 s.
TEST_LINKER := $(firstword $(foreach l,mold gold lld,$(if $(shell command -v ld.$(l) 2>/dev/null),-fuse-ld=$(l))))
# Without debug information 250 programs take 58 s of processor time instead of 73, and 184 MB instead of 625. For gdb:
# make unit-ring TEST_STRIP=, after removing the program. Reports of sanitizers name lines, so their builds keep it.
ifeq ($(VARIANT),release)
TEST_STRIP ?= -Wl,--strip-debug
endif
$(UNIT): $(B)/tests/%: $(B)/tests/%.o $(LIB)
	$(CC) $(LDFLAGS) $(TEST_LINKER) $(TEST_STRIP) -o $@ $< $(LIB) -lcmocka $(LDLIBS)

# Those that let memory run out (tests/unit/alloc_faults.h).
ALLOC_FAULTS := sessions_memory ip_table
$(ALLOC_FAULTS:%=$(B)/tests/unit/test_%): \
    LDFLAGS += $(foreach f,malloc calloc realloc strdup strndup,-Wl,--wrap=$(f))

# One test by name: make unit-buf runs tests/unit/test_buf.c; ops-linear and golden-models likewise.
unit-%: $(B)/tests/unit/test_% ; $<
ops-%: $(B)/tests/ops/test_% ; $<
golden-%: $(B)/tests/golden/test_% ; $<
# One part's speed: make bench-sampler runs tests/bench/bench_sampler.c.
$(B)/tests/bench/bench_kernels.o: CFLAGS += -march=native -ffp-contract=fast # it measures ceilings
$(B)/tests/bench/bench_%: $(B)/tests/bench/bench_%.o $(LIB)
	$(CC) $(LDFLAGS) -o $@ $< $(LIB) $(LDLIBS)
$(B)/tests/bench/bench_cuda: $(B)/tests/bench/bench_cuda.cu.o $(LIB)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lstdc++
bench-%: $(B)/tests/bench/bench_% ; $< $(ARGS)
# Compiled with the tests, so that a change of an interface does not break a benchmark unseen.
BENCHES := $(patsubst %.c,$(B)/%.o,$(filter-out $(if $(filter 1,$(CUDA)),,%/bench_all_reduce.c),$(wildcard tests/bench/bench_*.c))) \
           $(if $(filter 1,$(CUDA)),$(B)/tests/bench/bench_cuda.cu.o)
# Benchmarks are made by pattern rules, so make would delete them as intermediate files. .SECONDARY without a list would
# keep every target, but make does not rebuild a missing secondary file: cuda-0 would stay missing after a build with CUDA=1.
.SECONDARY: $(foreach b,$(wildcard tests/bench/bench_*.c*),$(B)/$(basename $(b)) $(B)/$(patsubst %.c,%,$(b)).o)
lib: $(LIB)

# Fuzz targets (VARIANT=fuzz, by clang): tests/fuzz/fuzz_NAME.c over what reads files and messages.
FUZZERS := $(patsubst %.c,$(B)/%,$(sort $(filter-out $(if $(filter 0,$(GRPC)),%/fuzz_grpc.c),$(wildcard tests/fuzz/fuzz_*.c))))
FUZZED_PARTS := base/% engine/gguf/% engine/grammar/% engine/kv_dtype.o engine/engine_names.o kernels/groups.o engine/dist/% engine/model/% \
    engine/sampling/% engine/text/% engine/jinja/% kvcache/snapshot% sessions/% gen/% ws/parley/protocol% \
    $(addprefix ws/hub/,name.o listing.o choice.o) \
    $(addprefix ws/openai/,body.o failure.o responses_id.o responses_items.o responses_hosted.o completions_request.o embeddings_request.o prompts_request.o) \
    ws/completion/request.o \
    $(addprefix ws/anthropic/,messages_request.o messages_refuse.o conversation.o tools.o thinking_seal.o) \
    $(addprefix ws/kserve/,code.o tensor.o infer_request.o infer_inputs.o infer_outputs.o prompt_inputs.o word_lists.o \
        text_models.o http/number_data.o http/tensor_json.o grpc/tensor_message.o grpc/message.o)
FUZZED := $(filter $(addprefix $(B)/,$(FUZZED_PARTS)),$(OBJ))
# A source that has gone leaves the archive too: the list is written where it has changed.
$(B)/libfuzzed.list: FORCE
	@mkdir -p $(@D)
	@echo '$(FUZZED)' | cmp -s - $@ || echo '$(FUZZED)' >$@
$(B)/libfuzzed.a: $(FUZZED) $(B)/libfuzzed.list
	@rm -f $@
	ar rcs $@ $(FUZZED)
$(FUZZERS): $(B)/%: $(B)/%.o $(B)/libfuzzed.a
	$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $< $(B)/libfuzzed.a $(LDLIBS)
fuzzers: $(FUZZERS)
# The same targets with a main that walks the kept corpora (tests/fuzz/walk.c), in the sanitizers' build of gcc.
WALKS := $(FUZZERS:$(B)/tests/fuzz/fuzz_%=$(B)/tests/fuzz/walk_%)
$(B)/tests/fuzz/fuzz_%.o: CFLAGS += $(if $(filter fuzz,$(VARIANT)),,-Wno-missing-field-initializers)
$(WALKS): $(B)/tests/fuzz/walk_%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/fuzz/walk.o $(LIB)
	$(CC) $(LDFLAGS) $(TEST_LINKER) -o $@ $< $(B)/tests/fuzz/walk.o $(LIB) $(LDLIBS)
walks: $(WALKS)

# --- the chat page: bundled by node into build/web (web/build.mjs), then embedded (web/embed.mjs) ------------
web/node_modules/.package-lock.json: web/package-lock.json
	@command -v npm >/dev/null || { echo 'The chat page is bundled with node: install nodejs and npm.' >&2; exit 1; }
	cd web && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
build/web/index.html: web/node_modules/.package-lock.json web/build.mjs $(shell find web/src -type f 2>/dev/null)
	node web/build.mjs build/web
$(B)/gen/page_assets.c: build/web/index.html web/embed.mjs
	@mkdir -p $(@D)
	node web/embed.mjs build/web $@
PAGE := $(B)/gen/page_assets.o
$(PAGE): $(B)/gen/page_assets.c
	$(CC) $(CFLAGS) -c $< -o $@

# --- the program -------------------------------------------------------------------------------------------
# What --version says beside the version: the commit of a git checkout and its date, never the time of the build. A source
# package has no checkout and gives COMMIT and SOURCE_DATE_EPOCH. Only the program is linked with it: a new commit
# relinks no test.
ifeq ($(shell git rev-parse --show-toplevel 2>/dev/null),$(CURDIR))
COMMIT            ?= $(shell git describe --always --dirty --abbrev=12 --exclude='*')
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
endif
BUILD_DATE := $(if $(SOURCE_DATE_EPOCH),$(shell date -u -d @$(SOURCE_DATE_EPOCH) +%Y-%m-%d))
$(B)/gen/build_info.c: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '#include "ws/cli/build_info.h"' 'const char build_commit[] = "$(COMMIT)";' \
	    'const char build_date[] = "$(BUILD_DATE)";' >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
BUILD_INFO := $(B)/gen/build_info.o
$(BUILD_INFO): $(B)/gen/build_info.c
	$(CC) $(CFLAGS) -c $< -o $@

PARLEY := $(B)/parley
$(PARLEY): $(B)/ws/cli/main.o $(PAGE) $(BUILD_INFO) $(LIB)
	$(CC) $(LDFLAGS) -o $@ $< $(PAGE) $(BUILD_INFO) $(LIB) $(LDLIBS)
# For packages, which see what a program is linked with.
$(B)/lazy_libraries.so:
	@mkdir -p $(@D)
	$(CC) -shared -nostdlib -Wl,--no-as-needed -o $@ $(LAZY_LIBS)
all: $(PARLEY) ## build/release/parley, the whole program (CUDA=0|1, GRPC=0|1, MPI=0|1)

# --- what a user types ------------------------------------------------------------------------------------
# The packages are looked for at parse time (PKGS above), so a target that may install some starts make anew.
SUBMAKE := $(MAKE) --no-print-directory -j$(shell nproc)

run: ## build what is needed and serve the demo model at http://127.0.0.1:8080
	@configs/deps.sh build
	@$(SUBMAKE) -s all
	@exec $(PARLEY) serve --config configs/demo.ini
# Each check in two steps, so that .ci/run can build the next one beside the tests of the one before.
SUITES := unit ops golden layers e2e page
test: test-built ## what a change can break, in minutes; ends with `N passed, N failed`
	@tests/run.sh --quick $(B) $(SUITES)
test-built:
	@configs/deps.sh test
	@$(SUBMAKE) -s all tests
test-all: test-built check-tsan-built ## all tests: also long walks, attacks, kill -9, more ranks, external clients, threads under TSan
	@THREADED='$(THREADED)' tests/run.sh $(B) $(SUITES) clients torture build/tsan threads e2e-threads
test-of: test-built ## the tests that a change of one folder can break: make test-of FOLDER=engine/sampling
	@tests/run.sh --of '$(or $(FOLDER),$(filter-out test-of,$(MAKECMDGOALS)))' --verbose $(B) $(SUITES)
ifneq ($(filter test-of,$(MAKECMDGOALS)),)
$(filter-out test-of,$(MAKECMDGOALS)): test-of ; @:
endif
check-long: check-long-built ## what takes long: attacks, chaos, walks, most ranks, external clients, or a part of it (PART=0/8 is the first eighth)
	@tests/run.sh --long $(if $(PART),--part $(PART)) $(B) $(SUITES) clients
check-long-built: test-built
check-clients: check-clients-built ## frameworks that are built on OpenAI's protocols, unmodified; needs Node 20
	@tests/run.sh $(B) clients
check-clients-built: test-built
check-asan: check-asan-built ## what handles memory and input, under AddressSanitizer and UndefinedBehaviorSanitizer
	@tests/run.sh $(if $(ASAN_PART),--turns $(ASAN_PART)) build/asan unit ops walk corpora hostile
check-asan-built:
	@configs/deps.sh test
	@$(SUBMAKE) -s VARIANT=asan all asan-tests
check-cuda: ## the op tests, the golden tests and a server from end to end on the first GPU
	@configs/deps.sh test
	@$(SUBMAKE) -s CUDA=1 all tests
	@PARLEY_TEST_DEVICE=cuda:0 tests/run.sh $(B) cuda
check-cuda-sanitize: ## compute-sanitizer's four tools over the op tests, on the first GPU
	@configs/deps.sh test
	@$(SUBMAKE) -s CUDA=1 all tests
	@tests/run.sh $(B) sanitize
check-cuda-archs: ## every kernel for other GPUs than sm_90 too: minutes of all processors, and not part of CI
	@$(SUBMAKE) -s VARIANT=archs CUDA=1 CUDA_ARCHS='$(OTHER_ARCHS) sm_90' all
check-tsan: check-tsan-built ## the threaded tests under ThreadSanitizer
	@THREADED='$(THREADED)' tests/run.sh build/tsan threads e2e-threads
check-tsan-built:
	@configs/deps.sh test
	@$(SUBMAKE) -s VARIANT=tsan all threaded
FUZZ_CC      ?= $(CCACHE)clang
FUZZ_SECONDS ?= 60
fuzz: check-fuzz-built ## every fuzz target for FUZZ_SECONDS=60 each, or the one named by FUZZ=jinja
	@tests/fuzz/run.sh build/fuzz $(FUZZ_SECONDS) $(FUZZ)
check-fuzz: check-fuzz-built ## the fuzz targets over their kept corpus, and a short run of each
	@tests/run.sh build/fuzz fuzz
check-fuzz-built:
	@configs/deps.sh fuzz
	@$(SUBMAKE) -s VARIANT=fuzz CC='$(FUZZ_CC)' fuzzers
# What the end-to-end tests and the benchmarks import.
E2E_PACKAGES := tests/e2e/node_modules/.package-lock.json
$(E2E_PACKAGES): tests/e2e/package-lock.json
	@cd tests/e2e && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
torture: all $(E2E_PACKAGES) ## 1,000 times kill -9 at random moments (KILLS=N), 200 deaths of engines, and one owner's attacks in full
	@cd tests/e2e && KILLS=$(or $(KILLS),1000) PARLEY=$(CURDIR)/$(PARLEY) node --test --test-name-pattern='kill -9' crash.test.mjs
	@PARLEY=$(CURDIR)/$(PARLEY) node tests/torture/kill_engines.mjs $(or $(DEATHS),200)
	@PARLEY=$(CURDIR)/$(PARLEY) node tests/torture/attacks.mjs
bench: all $(E2E_PACKAGES) ## this machine's figures, beside llama.cpp; into tests/bench/results/*.json
	@tests/bench/run.sh $(PARLEY)
plots: ## tests/bench/results/*.svg from the figures beside them
	@node tests/bench/plots.mjs
bench-recording: all $(E2E_PACKAGES) ## what keeping everything costs: decode, commits, long sessions (ARGS='ROUNDS MODEL')
	@PARLEY=$(CURDIR)/$(PARLEY) node tests/bench/recording.mjs $(ARGS)
bench-page: all $(E2E_PACKAGES) ## first paint, typing and scrolling with 2,000 turns and 200 sessions (ARGS='TURNS SESSIONS')
	@PARLEY=$(CURDIR)/$(PARLEY) node tests/bench/page.mjs $(ARGS)
check-reproducible: ## two builds without ccache give the same bytes (in two folders, with CUDA=1 in one)
	@configs/deps.sh build
	@tests/check_reproducible.sh CUDA=$(CUDA) REPRODUCIBLE=1
format: ## clang-format 14 on every source file
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format-14 -i
# The manual pages and the completion of bash, printed by the program from the tables that --help prints.
DOCUMENTS := $(B)/documents/parley.1 $(B)/documents/parley.ini.5 $(B)/documents/parley
$(B)/documents/parley.1: document := man
$(B)/documents/parley.ini.5: document := man-settings
$(B)/documents/parley: document := bash
$(DOCUMENTS): $(PARLEY)
	@mkdir -p $(@D)
	$(PARLEY) documents $(document) >$@.new && mv $@.new $@
install: all $(DOCUMENTS) ## into PREFIX=/usr/local: program, manual pages, completion, demo model, configuration
	install -D -m 644 $(B)/documents/parley.1 $(DESTDIR)$(PREFIX)/share/man/man1/parley.1
	install -D -m 644 $(B)/documents/parley.ini.5 $(DESTDIR)$(PREFIX)/share/man/man5/parley.ini.5
	install -D -m 644 $(B)/documents/parley $(DESTDIR)$(PREFIX)/share/bash-completion/completions/parley
	install -D -m 755 $(PARLEY) $(DESTDIR)$(PREFIX)/bin/parley
	install -d $(DESTDIR)$(PREFIX)/share/parley/demo-model
	install -m 644 configs/demo-model/* $(DESTDIR)$(PREFIX)/share/parley/demo-model
	sed 's|^model = .*|model = $(abspath $(PREFIX))/share/parley/demo-model|' configs/demo.ini >$(DESTDIR)$(PREFIX)/share/parley/demo.ini
# The packaging is configs/debian; dpkg wants it as debian/, so a copy of the sources is built.
deb: ## build/deb/parley_*.deb, the Debian package (CUDA=0|1); npm fetches the page's packages
	@rm -rf build/deb && mkdir -p build/deb/parley
	@git ls-files -z | tar -c --null -T - | tar -x -C build/deb/parley
	@cp -r configs/debian build/deb/parley/debian
	@echo '$(COMMIT)' >build/deb/parley/debian/commit
	cd build/deb/parley && env -u MAKEFLAGS -u MAKELEVEL CUDA=$(CUDA) dpkg-buildpackage -b -us -uc
	@ls build/deb/*.deb
clean: ## remove build/
	rm -rf build
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-19s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo '  variables: CUDA=0|1 (1 where nvcc is found), GRPC=0|1 (1 where libgrpc-dev and protobuf-c are found), MPI=0|1 (1 where mpicc is found), PREFIX=/usr/local, DESTDIR=,'
	@echo '             VARIANT=release|asan|tsan|fuzz, CUDA_ARCHS="sm_90 ...", REPRODUCIBLE=1 (kernels with the same bytes in every build)'
tests: $(UNIT) $(B)/tests/fake_server $(E2E_PACKAGES) $(if $(filter release,$(VARIANT)),$(BENCHES)) $(if $(filter 1,$(CUDA)),$(B)/tests/gpu/fault.so $(B)/tests/gpu/trap.fatbin)
# What check-asan runs: of golden the walks alone.
asan-tests: $(filter-out $(B)/tests/golden/%,$(UNIT)) $(filter $(B)/tests/golden/%_walk,$(UNIT)) $(B)/tests/fake_server $(E2E_PACKAGES) walks
# A GPU that fails (tests/gpu/README.md).
$(B)/tests/gpu/fault.so: tests/gpu/fault.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -fPIC -o $@ $< -ldl
$(B)/tests/gpu/trap.fatbin: tests/gpu/trap.cu
	@mkdir -p $(@D)
	$(NVCC) -fatbin $(filter -gencode=%,$(NVCCFLAGS)) -o $@ $<
# What several threads do at once, for ThreadSanitizer; the rest only runs slower under it.
THREADED := queue workers log metrics threads thread_priority engine_thread store sessions sessions_turns sessions_preparing grammars
threaded: $(THREADED:%=$(B)/tests/unit/test_%)
# The server on sessions without model and database, for the tests of the wire (tests/e2e/wire*.test.mjs).
$(B)/tests/fake_server: $(B)/tests/fakes/main_fake_server.o $(B)/tests/fakes/fake_sessions.o $(B)/tests/fakes/fake_engine.o $(B)/tests/fakes/fake_rendering.o $(PAGE) $(LIB)
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
-include $(shell find $(B) -name '*.d' 2>/dev/null)
FORCE:
.PHONY: FORCE all lib clean run test tests threaded check-asan check-cuda check-tsan fuzz fuzzers check-fuzz torture bench plots bench-recording bench-page format \
    install help check-cuda-sanitize check-cuda-archs check-reproducible deb test-all test-of check-long check-long-built asan-tests walks test-built check-clients check-clients-built check-asan-built check-tsan-built check-fuzz-built
