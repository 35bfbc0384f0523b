// Opens the CPU backend: picks the instruction set and the number of workers, and holds the op
// table.
#include "kernels/cpu/cpu.h"
#include "base/cgroup.h"
#include "kernels/cpu/int8_rows.h"
#include "kernels/cpu/linear_amx.h"
#include "kernels/cpu/linear_bf16.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

// --- memory

// mem_free does not get the size: it is stored in a cache line before the memory.
static int cpu_mem_alloc(struct backend *be, size_t bytes, void **out, struct err *err) {
    char *p = bytes <= SIZE_MAX - 64 ? cpu_pages_alloc(bytes + 64) : NULL;
    if (!p) return err_set(err, E_NOMEM, "out of memory for %zu bytes", bytes);
    bytes += 64;
    memcpy(p, &bytes, sizeof bytes);
    *out = p + 64;
    return 0;
}

static void cpu_mem_free(struct backend *be, void *p) {
    if (!p) return;
    size_t bytes;
    memcpy(&bytes, (char *)p - 64, sizeof bytes);
    cpu_pages_free((char *)p - 64, bytes);
}

static int cpu_mem_copy(struct backend *be, void *dst, const void *src, size_t bytes) {
    memcpy(dst, src, bytes);
    return 0;
}

// --- the rest of the table -----------------------------------------------------------------------
static int cpu_step_begin(struct backend *be, const struct batch *b, const struct batch **run) {
    *run = b;
    return 0;
}
static int cpu_step_launch(struct backend *be) {
    return 0;
}
static int cpu_step_end(struct backend *be) {
    return 0;
}

struct host_job {
    void (*fn)(void *ctx, int item);
    void *ctx;
};

static void host_item(void *ctx, int item, int worker) {
    const struct host_job *j = ctx;
    j->fn(j->ctx, item);
}

static void cpu_host_for(struct backend *be, int n, void (*fn)(void *ctx, int item), void *ctx) {
    struct host_job j = {fn, ctx};
    threads_for(cpu_of(be)->threads, n, host_item, &j);
}

static void cpu_close(struct backend *be) {
    if (!be) return;
    struct cpu_backend *cpu = cpu_of(be);
    threads_free(cpu->threads);
    for (int i = 0; i < THREADS_MAX; i++)
        cpu_pages_free(cpu->scratch[i].data, cpu->scratch[i].bytes);
    cpu_pages_free(cpu->shared.data, cpu->shared.bytes);
    pages_pool_release(&cpu->weights);
    free(cpu);
}

static const struct backend_ops cpu_ops = {
    .name = "cpu",
    .kv_groups = true,
    .features = OP_SOFT_CAP | OP_QUERY_SCALE | OP_QK_NORM_WIDTH | OP_QK_NORM_LATE | OP_V_NORM |
                OP_QKV_CLIP | OP_Q_ONLY | OP_SCALE | OP_XIELU | OP_LAYER_INPUTS | OP_LOGITS |
                OP_SINKS | OP_EXPERTS | OP_EXPERTS_MIXED | OP_LATENT | OP_GROUPS,
    .mem_alloc = cpu_mem_alloc,
    .mem_free = cpu_mem_free,
    .mem_write = cpu_mem_copy,
    .mem_read = cpu_mem_copy,
    .weight_init = cpu_weight_init,
    .weight_map = cpu_weight_map,
    .weight_release = cpu_weight_release,
    .kv_block_bytes = cpu_kv_block_bytes,
    .kv_store_init = cpu_kv_store_init,
    .kv_store_release = cpu_kv_store_release,
    .kv_block_copy = cpu_kv_block_copy,
    .kv_blocks_save = cpu_kv_blocks_save,
    .kv_blocks_load = cpu_kv_blocks_load,
    .kv_blocks_unused = cpu_kv_blocks_unused,
    .kv_block_guard = cpu_kv_block_guard,
    .step_begin = cpu_step_begin,
    .step_launch = cpu_step_launch,
    .step_end = cpu_step_end,
    .embed = cpu_embed,
    .embed_positions = cpu_embed_positions,
    .norm = cpu_norm,
    .linear = cpu_linear,
    .qk_norm = cpu_qk_norm,
    .rope_angles = cpu_rope_angles,
    .rope = cpu_rope,
    .kv_write = cpu_kv_write,
    .attention = cpu_attention,
    .activate = cpu_activate,
    .add = cpu_add,
    .route = cpu_route,
    .experts = cpu_experts,
    .experts_bytes = cpu_experts_bytes,
    .latent_attention = cpu_latent_attention,
    .latent_bytes = cpu_latent_bytes,
    .scale = cpu_scale,
    .multiply_rows = cpu_multiply_rows,
    .xielu = cpu_xielu,
    .finish_logits = cpu_finish_logits,
    .add_gated = cpu_add_gated,
    .gather_logit_rows = cpu_gather_logit_rows,
    .host_for = cpu_host_for,
    .qkv_finish = cpu_qkv_finish,
    .norm_linear = cpu_norm_linear,
    .feed_forward = cpu_feed_forward,
    .close = cpu_close,
};

// --- instruction sets ----------------------------------------------------------------------------
struct isa {
    const char *name, *label;
    const struct cpu_kernels *kernels;
    bool (*have)(void);
    bool amx; // refine the table with linear_amx.c
};

static bool have_portable(void) {
    return true;
}

#if defined(__x86_64__)
static bool have_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

static bool have_avx512(void) {
    return have_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

// All processors with AMX-BF16 so far have AMX-INT8 (bit 25) and VNNI; without them AVX-512 is
// used.
static bool have_amx_int8(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 25 & 1) &&
           __builtin_cpu_supports("avx512vnni");
}

// The processor's bits (leaf 7, edx: 24 AMX-TILE, 22 AMX-BF16), and the kernel's permission to use
// the 8 KiB of tile registers, which must be requested because it enlarges the saved state of every
// thread.
static bool have_amx(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    if (!have_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(d >> 24 & 1) || !(d >> 22 & 1)) return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

// Best last.
static const struct isa isas[] = {
    {"portable", "portable C", &cpu_kernels_portable, have_portable, false},
#if defined(__x86_64__)
    {"avx2", "AVX2", &cpu_kernels_avx2, have_avx2, false},
    {"avx512", "AVX-512", &cpu_kernels_avx512, have_avx512, false},
    {"amx", "AMX and AVX-512", &cpu_kernels_avx512, have_amx, true},
#endif
};
enum { N_ISAS = sizeof isas / sizeof *isas };

static int pick_isa(const struct isa **out, const char *name, struct err *err) {
    bool any = !name || strcmp(name, "auto") == 0, known = false;
    for (int i = N_ISAS - 1; i >= 0; i--) {
        bool named = !any && strcmp(name, isas[i].name) == 0;
        known = known || named;
        if (!(any || named) || !isas[i].have()) continue;
        *out = &isas[i];
        return 0;
    }
    if (known)
        return err_set(err, E_UNSUPPORTED, "this processor does not have the instruction set '%s'",
                       name);
    return err_set(err, E_UNSUPPORTED, "this build does not have the instruction set '%s'", name);
}

#if defined(__x86_64__)
// Dot products of bytes are an extension of their own, and give the same bits.
static void set_int8_kernels(struct cpu_backend *cpu, const struct isa *isa) {
    if (isa->kernels == &cpu_kernels_avx512 && __builtin_cpu_supports("avx512vnni")) {
        cpu->table.int8_split = int8_vnni512_split;
        cpu->table.int8_item = int8_vnni512_item;
        cpu->table.groups_split = groups_vnni512_split;
        cpu->table.groups_item = groups_vnni512_item;
    }
    if (isa->kernels == &cpu_kernels_avx2 && __builtin_cpu_supports("avxvnni")) {
        cpu->table.int8_split = int8_vnni256_split;
        cpu->table.int8_item = int8_vnni256_item;
        cpu->table.groups_split = groups_vnni256_split;
        cpu->table.groups_item = groups_vnni256_item;
    }
}
#endif

static void set_kernels(struct cpu_backend *cpu, const struct isa *isa) {
    cpu->table = *isa->kernels;
    cpu->kernels = &cpu->table;
#if defined(__x86_64__)
    set_int8_kernels(cpu, isa);
    if (!isa->amx) return;
    if (have_amx_int8()) {
        cpu->table.int8_split = int8_amx_split;
        cpu->table.int8_item = int8_amx_item;
    }
    cpu->table.linear_split = amx_linear_split;
    cpu->table.linear_item_split = amx_linear_item;
    cpu->table.linear_row_bytes = amx_linear_row_bytes;
#endif
}

// For bf16 weights, x is rounded to bf16. There is no fallback: emulated products would be slower
// than F32's, which are closer to the model.
static int set_bf16_kernels(struct cpu_backend *cpu, const struct isa *isa, struct err *err) {
#if defined(__x86_64__)
    cpu->base.bf16_products = true;
    if (isa->kernels == &cpu_kernels_avx512 && __builtin_cpu_supports("avx512vnni")) {
        cpu->table.groups8_split = groups8_vnni512_split;
        cpu->table.groups8_item = groups8_vnni512_item;
    }
    if (isa->amx) {
        cpu->table.linear_split = amx_bf16_linear_split;
        cpu->table.linear_item_split = amx_bf16_linear_item;
        cpu->table.linear_row_bytes = amx_bf16_linear_row_bytes;
        return 0;
    }
    if (isa->kernels == &cpu_kernels_avx512 && __builtin_cpu_supports("avx512bf16")) {
        cpu->table.linear_split = bf16_linear_split;
        cpu->table.linear_item_split = bf16_linear_item;
        cpu->table.linear_row_bytes = bf16_linear_row_bytes;
        cpu->packs_all = true;
        cpu->fuses = true;
        return 0;
    }
#endif
    return err_set(err, E_UNSUPPORTED,
                   "compute_dtype bf16 needs a processor with AVX512-BF16 or AMX; %s computes in "
                   "f32",
                   isa->label);
}

static int set_compute(struct cpu_backend *cpu, const struct isa *isa, enum dtype compute,
                       struct err *err) {
    if (compute == DTYPE_F32) return 0;
    if (compute == DTYPE_BF16) return set_bf16_kernels(cpu, isa, err);
    return err_set(err, E_UNSUPPORTED, "compute_dtype %s: the CPU computes in f32 or bf16",
                   dtype_name(compute));
}

static int usable_cores(void) {
    int n = cgroup_processors();
    return n > THREADS_MAX ? THREADS_MAX : n;
}

// The size of one of a core's caches, by the kernel; 0 past the last.
static size_t cache_bytes(int index, int *level) {
    char path[64];
    long kib = 0;
    *level = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", index);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%d", level) != 1) *level = 0;
    fclose(f);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%ldK", &kib) != 1) kib = 0;
    fclose(f);
    return kib > 0 ? (size_t)kib << 10 : 0;
}

// The size of the cache that neighbouring cores share. The C library adds up the caches of all
// cores (320 for an EPYC's 32 MiB). 0 if unknown.
static size_t last_level_cache_bytes(void) {
    size_t best = 0;
    for (int i = 0, best_level = 0; i < 8; i++) {
        int level;
        size_t bytes = cache_bytes(i, &level);
        if (bytes == 0 || level <= best_level) continue;
        best_level = level;
        best = bytes;
    }
#if defined(_SC_LEVEL3_CACHE_SIZE)
    if (best == 0 && sysconf(_SC_LEVEL3_CACHE_SIZE) > 0)
        best = (size_t)sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return best;
}

int backend_cpu_open(struct backend **out, int n_threads, const char *isa, struct err *err) {
    return backend_cpu_open_for(out, DTYPE_F32, n_threads, isa, err);
}

int backend_cpu_open_for(struct backend **out, enum dtype compute, int n_threads, const char *isa,
                         struct err *err) {
    *out = NULL;
    if (n_threads < 0 || n_threads > THREADS_MAX)
        return err_set(err, E_INVAL, "%d threads: at most %d, or 0 for one per core", n_threads,
                       THREADS_MAX);
    const struct isa *set = NULL;
    TRY(pick_isa(&set, isa, err));
    struct cpu_backend *cpu = calloc(1, sizeof *cpu);
    if (!cpu) return err_set(err, E_NOMEM, "out of memory for the CPU backend");
    cpu->base =
        (struct backend){.ops = &cpu_ops, .act_dtype = DTYPE_F32, .description = cpu->description};
    set_kernels(cpu, set);
    int rc = set_compute(cpu, set, compute, err);
    if (rc < 0) {
        free(cpu);
        return rc;
    }
    cpu_raw_budget_set(cpu, cpu->packs_all ? 0 : last_level_cache_bytes());
    cpu->base.n_threads = n_threads ? n_threads : usable_cores();
    rc = threads_new(&cpu->threads, cpu->base.n_threads, err);
    if (rc < 0) {
        free(cpu);
        return rc;
    }
    snprintf(cpu->description, sizeof cpu->description, "%s%s, %d thread%s", set->label,
             cpu->base.bf16_products ? ", products of bf16" : "", cpu->base.n_threads,
             cpu->base.n_threads == 1 ? "" : "s");
    *out = &cpu->base;
    return 0;
}
