// The cache arena on the CPU: layout of a block (README.md has the picture), allocation, copies.
//
//   block: [layer][kv head] { K [head_dim][block_tokens], V [block_tokens][head_dim] }
//   with 8 bits behind these, from a multiple of 4: scales of K [block_tokens], of V [block_tokens]
//   latents: V and its scales alone
//
// K is transposed, so that a vector's lanes are positions and a dot product needs no sum over
// lanes; its scales lie as those lanes do.
#include "kernels/cpu/kv_store.h"
#include "base/memory.h"
#include "kernels/kv_shape.h"
#include <string.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

static size_t block_bytes(const struct kv_store *kv) {
    size_t heads = (size_t)kv->n_layers * (size_t)kv->n_kv_heads;
    return (heads * cpu_kv_head_bytes(kv) + 63) & ~(size_t)63;
}

size_t cpu_kv_block_bytes(struct backend *be, const struct kv_store *shape) {
    return block_bytes(shape);
}

int cpu_kv_store_init(struct backend *be, struct kv_store *kv, struct err *err) {
    kv->data = NULL;
    TRY(kv_shape_check(kv, "the CPU", err));
    TRY(cpu_attention_reserve(cpu_of(be), kv->head_dim, err));
    kv->block_bytes = block_bytes(kv);
    size_t bytes = kv->block_bytes * (size_t)kv->n_blocks;
    kv->data = cpu_pages_alloc(bytes);
    kv->n_guarded = 0;
    if (!kv->data)
        return err_set(
            err, E_NOMEM,
            "out of memory for a cache of %d blocks of %zu bytes: lower kv_cache_bytes%s",
            kv->n_blocks, kv->block_bytes, memory_advice().text);
    return 0;
}

void cpu_kv_store_release(struct backend *be, struct kv_store *kv) {
    // The next owner of the pages may access them. Of blocks never used that would be an eighth of the arena in shadow
    // memory: 1.4 GiB for half of 24 GiB.
    ASAN_UNPOISON_MEMORY_REGION(kv->data, kv->block_bytes * (size_t)kv->n_guarded);
    cpu_pages_free(kv->data, kv->block_bytes * (size_t)kv->n_blocks);
    kv->data = NULL;
}

int cpu_kv_block_copy(struct backend *be, struct kv_store *kv, int32_t dst, int32_t src) {
    if (dst < 0 || dst >= kv->n_blocks || src < 0 || src >= kv->n_blocks) return E_INVAL;
    if (dst != src)
        memcpy((char *)kv->data + (size_t)dst * kv->block_bytes,
               (char *)kv->data + (size_t)src * kv->block_bytes, kv->block_bytes);
    return 0;
}

// --- to host memory and back

// The workers share the bytes: one core alone does not reach the memory's read rate.
enum { PIECE_BYTES = 256 << 10 };

struct copies {
    char *arena;
    void *const *host;
    const int32_t *blocks;
    size_t block_bytes;
    int pieces; // of a block
    bool load;
};

static void copy_piece(void *ctx, int item, int worker) {
    const struct copies *c = ctx;
    size_t at = (size_t)(item % c->pieces) * PIECE_BYTES;
    size_t bytes = c->block_bytes - at < PIECE_BYTES ? c->block_bytes - at : PIECE_BYTES;
    int i = item / c->pieces;
    char *block = c->arena + (size_t)c->blocks[i] * c->block_bytes + at;
    char *host = (char *)c->host[i] + at;
    memcpy(c->load ? block : host, c->load ? host : block, bytes);
}

static int copy_blocks(struct backend *be, const struct kv_store *kv, void *const *host,
                       const int32_t *blocks, int32_t n, bool load) {
    struct copies c = {.arena = kv->data,
                       .host = host,
                       .blocks = blocks,
                       .block_bytes = kv->block_bytes,
                       .pieces = (int)((kv->block_bytes + PIECE_BYTES - 1) / PIECE_BYTES),
                       .load = load};
    for (int32_t i = 0; i < n; i++) {
        if (blocks[i] < 0 || blocks[i] >= kv->n_blocks) return E_INVAL;
    }
    int32_t most = THREADS_MAX_ITEMS / c.pieces;
    for (int32_t first = 0; first < n; first += most) {
        c.host = host + first;
        c.blocks = blocks + first;
        int32_t some = n - first < most ? n - first : most;
        threads_for(cpu_of(be)->threads, some * c.pieces, copy_piece, &c);
    }
    return 0;
}

int cpu_kv_blocks_save(struct backend *be, const struct kv_store *kv, void *const *host,
                       const int32_t *blocks, int32_t n) {
    return copy_blocks(be, kv, host, blocks, n, false);
}

int cpu_kv_blocks_load(struct backend *be, struct kv_store *kv, const int32_t *blocks,
                       void *const *host, int32_t n) {
    return copy_blocks(be, kv, host, blocks, n, true);
}

void cpu_kv_blocks_unused(struct backend *be, const struct kv_store *kv, const int32_t *blocks,
                          int32_t n) {
    for (int32_t i = 0; i < n; i++)
        cpu_pages_give_back((char *)kv->data + (size_t)blocks[i] * kv->block_bytes,
                            kv->block_bytes);
}

void cpu_kv_block_guard(struct backend *be, struct kv_store *kv, int32_t block, bool is_free) {
    char *p = (char *)kv->data + (size_t)block * kv->block_bytes;
    if (kv->n_guarded <= block) kv->n_guarded = block + 1;
    if (is_free) {
        memset(p, 0xff, kv->block_bytes);
        ASAN_POISON_MEMORY_REGION(p, kv->block_bytes);
    } else {
        ASAN_UNPOISON_MEMORY_REGION(p, kv->block_bytes);
    }
}
