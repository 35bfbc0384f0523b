// See snapshot.h.
#include "kvcache/snapshot.h"

#include "base/xxh64.h"
#include "kvcache/ring.h"
#include <endian.h>
#include <string.h>

#define MAGIC "PRLYKV\r\n" // a transfer in text mode changes the line end
#define MAGIC_BYTES 8
#define SUM_AT (KV_SNAPSHOT_HEAD_BYTES - sizeof(uint64_t)) // the head's own checksum, at its end
#define ALIGN 4096
#define MAX_BLOCK_BYTES (UINT64_C(1) << 40)

// --- fields, in the same order for reading and writing

struct cursor {
    unsigned char *out;      // writing
    const unsigned char *in; // reading
    size_t at;
    bool bad; // a text is not terminated, or not padded with NULs
};

static void field_u64(struct cursor *c, uint64_t *v) {
    uint64_t le;
    if (c->out) {
        le = htole64(*v);
        memcpy(c->out + c->at, &le, sizeof le);
    } else {
        memcpy(&le, c->in + c->at, sizeof le);
        *v = le64toh(le);
    }
    c->at += sizeof le;
}

static void field_i32(struct cursor *c, int32_t *v) {
    uint64_t wide = (uint64_t)(int64_t)*v;
    field_u64(c, &wide);
    *v = (int32_t)(int64_t)wide;
    if ((int64_t)wide != *v) c->bad = true;
}

static void field_text(struct cursor *c, char *text, size_t cap) {
    if (c->out) {
        memset(c->out + c->at, 0, cap);
        memcpy(c->out + c->at, text, strnlen(text, cap - 1));
    } else {
        memcpy(text, c->in + c->at, cap);
        size_t len = strnlen(text, cap);
        for (size_t i = len; i < cap; i++) c->bad = c->bad || text[i];
        for (size_t i = 0; i < len; i++) c->bad = c->bad || (unsigned char)text[i] < 0x20;
        if (len == cap) c->bad = true;
        text[cap - 1] = '\0';
    }
    c->at += cap;
}

static void fields(struct cursor *c, struct kv_snapshot_head *h, uint64_t *file_bytes) {
    struct kv_snapshot_maker *m = &h->maker;
    field_text(c, h->id, sizeof h->id);
    field_u64(c, &h->owner[0]);
    field_u64(c, &h->owner[1]);
    field_u64(c, &h->prompt[0]);
    field_u64(c, &h->prompt[1]);
    field_text(c, m->model, sizeof m->model);
    field_text(c, m->backend, sizeof m->backend);
    field_text(c, m->build, sizeof m->build);
    field_text(c, m->dtype, sizeof m->dtype);
    field_u64(c, &m->tokenizer);
    field_i32(c, &m->n_layers);
    field_i32(c, &m->n_kv_heads);
    field_i32(c, &m->head_dim);
    field_i32(c, &m->block_tokens);
    field_u64(c, &m->block_bytes);
    field_i32(c, &h->memory_len);
    field_i32(c, &h->sink_len);
    uint64_t n_tokens = (uint64_t)h->n_tokens;
    field_u64(c, &n_tokens);
    h->n_tokens = (int64_t)n_tokens;
    field_i32(c, &h->n_blocks);
    field_u64(c, &h->table_sum);
    field_u64(c, file_bytes);
    if (h->maker.n_groups != 1) field_i32(c, &m->n_groups);
}

// --- sizes

size_t kv_snapshot_table_bytes(const struct kv_snapshot_head *h) {
    size_t ids = ((size_t)h->n_tokens * sizeof(int32_t) + 7) & ~(size_t)7;
    return ids + (size_t)h->n_blocks * 2 * sizeof(uint64_t);
}

uint64_t kv_snapshot_data_at(const struct kv_snapshot_head *h) {
    uint64_t at = KV_SNAPSHOT_HEAD_BYTES + kv_snapshot_table_bytes(h);
    return (at + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
}

uint64_t kv_snapshot_file_bytes(const struct kv_snapshot_head *h) {
    return kv_snapshot_data_at(h) + (uint64_t)h->n_blocks * h->maker.block_bytes;
}

static uint64_t version_of(int32_t n_groups) {
    return n_groups == 1 ? KV_SNAPSHOT_VERSION - 1 : KV_SNAPSHOT_VERSION;
}

// Whether a cache can have these sizes, and nothing computed from them overflows.
static bool sizes_can_be(const struct kv_snapshot_head *h) {
    const struct kv_snapshot_maker *m = &h->maker;
    if (m->n_layers < 1 || m->n_kv_heads < 1 || m->head_dim < 1) return false;
    if (m->block_tokens < 1 || m->block_bytes < 1 || m->block_bytes > MAX_BLOCK_BYTES) return false;
    if (h->sink_len < 0 || h->sink_len >= h->memory_len) return false;
    if (h->n_tokens < 1 || h->n_tokens > KV_SNAPSHOT_MAX_TOKENS) return false;
    if (m->n_groups < 1 || m->n_groups > KV_GROUPS_MAX) return false;
    int64_t most = ((h->n_tokens - 1) / m->block_tokens + 1) * m->n_groups;
    return h->n_blocks >= 1 && h->n_blocks <= most;
}

// --- the head

void kv_snapshot_write_head(const struct kv_snapshot_head *h,
                            unsigned char out[KV_SNAPSHOT_HEAD_BYTES]) {
    struct kv_snapshot_head copy = *h;
    uint64_t file_bytes = kv_snapshot_file_bytes(h), version = version_of(h->maker.n_groups);
    memset(out, 0, KV_SNAPSHOT_HEAD_BYTES);
    memcpy(out, MAGIC, MAGIC_BYTES);
    struct cursor c = {.out = out, .at = MAGIC_BYTES};
    field_u64(&c, &version);
    fields(&c, &copy, &file_bytes);
    uint64_t sum = xxh64(out, SUM_AT, 0);
    c.at = SUM_AT;
    field_u64(&c, &sum);
}

int kv_snapshot_read_head(struct kv_snapshot_head *h,
                          const unsigned char in[KV_SNAPSHOT_HEAD_BYTES], uint64_t file_bytes,
                          struct err *err) {
    struct cursor c = {.in = in, .at = SUM_AT};
    uint64_t sum, version, said = 0;
    memset(h, 0, sizeof *h);
    if (file_bytes < KV_SNAPSHOT_HEAD_BYTES)
        return err_set(err, E_CORRUPT, "it ends after %llu bytes", (unsigned long long)file_bytes);
    if (memcmp(in, MAGIC, MAGIC_BYTES) != 0) return err_set(err, E_FORMAT, "it is no snapshot");
    field_u64(&c, &sum);
    if (sum != xxh64(in, SUM_AT, 0)) return err_set(err, E_CORRUPT, "its head is damaged");
    c.at = MAGIC_BYTES;
    field_u64(&c, &version);
    h->maker.n_groups = version == version_of(1) ? 1 : 0; // 0: the head says
    if (version != version_of(h->maker.n_groups))
        return err_set(err, E_UNSUPPORTED, "it is of version %llu, not %d",
                       (unsigned long long)version, KV_SNAPSHOT_VERSION);
    fields(&c, h, &said);
    if (c.bad || !h->id[0] || !sizes_can_be(h))
        return err_set(err, E_CORRUPT, "its head contradicts itself");
    if (said != kv_snapshot_file_bytes(h) || said != file_bytes)
        return err_set(err, E_CORRUPT, "it has %llu bytes, and its head says %llu",
                       (unsigned long long)file_bytes, (unsigned long long)said);
    return 0;
}

// --- the table

void kv_snapshot_write_table(struct kv_snapshot_head *h, const int32_t *ids,
                             const struct kv_snapshot_block *blocks, unsigned char *out) {
    size_t bytes = kv_snapshot_table_bytes(h);
    memset(out, 0, bytes);
    for (int64_t i = 0; i < h->n_tokens; i++) {
        uint32_t le = htole32((uint32_t)ids[i]);
        memcpy(out + (size_t)i * sizeof le, &le, sizeof le);
    }
    struct cursor c = {.out = out, .at = ((size_t)h->n_tokens * sizeof(int32_t) + 7) & ~(size_t)7};
    for (int32_t i = 0; i < h->n_blocks; i++) {
        struct kv_snapshot_block b = blocks[i];
        field_u64(&c, &b.number);
        field_u64(&c, &b.sum);
    }
    h->table_sum = xxh64(out, bytes, 1);
}

int kv_snapshot_read_table(const struct kv_snapshot_head *h, const unsigned char *in, int32_t *ids,
                           struct kv_snapshot_block *blocks, struct err *err) {
    if (xxh64(in, kv_snapshot_table_bytes(h), 1) != h->table_sum)
        return err_set(err, E_CORRUPT, "its table is damaged");
    for (int64_t i = 0; i < h->n_tokens; i++) {
        uint32_t le;
        memcpy(&le, in + (size_t)i * sizeof le, sizeof le);
        ids[i] = (int32_t)le32toh(le);
    }
    struct cursor c = {.in = in, .at = ((size_t)h->n_tokens * sizeof(int32_t) + 7) & ~(size_t)7};
    int64_t last = (h->n_tokens - 1) / h->maker.block_tokens;
    uint64_t next = 0;
    for (int32_t i = 0; i < h->n_blocks; i++) {
        field_u64(&c, &blocks[i].number);
        field_u64(&c, &blocks[i].sum);
        uint64_t number = blocks[i].number;
        if (number < next || number >= (uint64_t)kv_number(h->maker.n_groups, 0) ||
            kv_number_logical((int64_t)number) > last)
            return err_set(err, E_CORRUPT, "its table contradicts itself");
        next = number + 1;
    }
    return 0;
}

const char *kv_snapshot_difference(const struct kv_snapshot_maker *a,
                                   const struct kv_snapshot_maker *b) {
    if (strcmp(a->model, b->model) != 0) return "model";
    if (a->tokenizer != b->tokenizer) return "tokenizer";
    if (strcmp(a->dtype, b->dtype) != 0) return "dtype";
    if (a->n_layers != b->n_layers || a->n_kv_heads != b->n_kv_heads ||
        a->head_dim != b->head_dim || a->n_groups != b->n_groups ||
        a->block_tokens != b->block_tokens || a->block_bytes != b->block_bytes)
        return "layout";
    if (strcmp(a->backend, b->backend) != 0) return "backend";
    return strcmp(a->build, b->build) != 0 ? "build" : NULL;
}
