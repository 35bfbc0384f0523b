// Divides heads, rows and layers between ranks. See split.h.
#include "engine/dist/split.h"

const struct split split_single = {0, 1, 0, 1};

int split_check(const struct split *s, int32_t n_layers, int32_t n_heads, int32_t n_kv_heads,
                int32_t ffn_width, struct err *err) {
    if (s->tp_size < 1 || s->tp_rank < 0 || s->tp_rank >= s->tp_size)
        return err_set(err, E_INVAL, "tensor-parallel rank %d of %d", s->tp_rank, s->tp_size);
    if (s->pp_size < 1 || s->pp_rank < 0 || s->pp_rank >= s->pp_size)
        return err_set(err, E_INVAL, "pipeline rank %d of %d", s->pp_rank, s->pp_size);
    if (s->pp_size > n_layers)
        return err_set(err, E_INVAL, "%d layers cannot go to %d pipeline ranks", n_layers,
                       s->pp_size);
    if (n_heads % s->tp_size != 0)
        return err_set(err, E_INVAL, "%d heads do not divide by %d tensor-parallel ranks", n_heads,
                       s->tp_size);
    if (n_kv_heads % s->tp_size != 0 && s->tp_size % n_kv_heads != 0)
        return err_set(err, E_INVAL,
                       "%d key/value heads and %d tensor-parallel ranks: neither divides the other",
                       n_kv_heads, s->tp_size);
    if (ffn_width % s->tp_size != 0)
        return err_set(err, E_INVAL,
                       "a feed-forward of %d does not divide by %d tensor-parallel ranks",
                       ffn_width, s->tp_size);
    return 0;
}

// Part `rank` of n in `size` contiguous parts; the first n % size parts are larger by one.
static struct range part(int32_t n, int32_t rank, int32_t size) {
    int32_t each = n / size, more = n % size;
    int32_t before = rank < more ? rank : more;
    return (struct range){rank * each + before, each + (rank < more)};
}

struct range split_layers(const struct split *s, int32_t n_layers) {
    return part(n_layers, s->pp_rank, s->pp_size);
}

struct range split_heads(const struct split *s, int32_t n_heads) {
    return part(n_heads, s->tp_rank, s->tp_size);
}

struct range split_kv_heads(const struct split *s, int32_t n_kv_heads) {
    if (s->tp_size <= n_kv_heads) return part(n_kv_heads, s->tp_rank, s->tp_size);
    // tp_size / n_kv_heads consecutive ranks hold the same head, which their query heads read.
    return (struct range){s->tp_rank / (s->tp_size / n_kv_heads), 1};
}

struct range split_even(const struct split *s, int32_t n) {
    return part(n, s->tp_rank, s->tp_size);
}
