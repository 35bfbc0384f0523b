// Latent attention against its definition in double precision, where each head has keys and values of its own: the op's
// shorter way (queries in the latents' space) must give the same. And the same bits in any chunks.
#include "tests/ops/latent_world.h"

enum { SEQS = 2 };

struct reference {
    const struct latents *s;
    const float *k, *v, *norm;
    const float *angles; // (positions, rope)
};

static void turn(const struct latents *s, const float *angles, const float *x, double *y) {
    const int half = s->rope / 2;
    for (int i = 0; i < half; i++) {
        const int at = s->style == ROPE_INTERLEAVED ? 2 * i : i;
        const int to = s->style == ROPE_INTERLEAVED ? at + 1 : i + half;
        const double c = angles[i], n = angles[half + i];
        y[at] = x[at] * c - x[to] * n;
        y[to] = x[to] * c + x[at] * n;
    }
}

// A position's latents, normed, and its rotated part.
static void vector_of(const struct reference *f, const float *latents, int32_t position, double *c,
                      double *turned) {
    const struct latents *s = f->s;
    double squares = 0;
    for (int i = 0; i < s->rank; i++) squares += (double)latents[i] * latents[i];
    const double by = 1 / sqrt(squares / s->rank + 1e-6);
    for (int i = 0; i < s->rank; i++) c[i] = latents[i] * by * f->norm[i];
    turn(s, f->angles + (int64_t)position * s->rope, latents + s->rank, turned);
}

static double weight_k(const struct reference *f, int h, int r, int i) {
    const struct latents *s = f->s;
    const float *k = f->k + (int64_t)h * s->rank * s->nope;
    return s->turned ? k[i * s->rank + r] : k[r * s->nope + i];
}

static void check_row(const struct reference *f, const struct seq *q, int32_t row) {
    const struct latents *s = f->s;
    const struct shape shape = latents_shape(s);
    const int64_t width = row_width(&shape), own = s->nope + s->rope;
    const int32_t first = row - s->memory_len + 1 > 0 ? row - s->memory_len + 1 : 0,
                  n = row + 1 - first;
    double *c = calloc((size_t)n * (size_t)s->rank, sizeof *c),
           *turned = calloc((size_t)n * (size_t)s->rope, sizeof *turned);
    double *p = calloc((size_t)n, sizeof *p), *value = calloc((size_t)s->rank, sizeof *value),
           *mine = calloc((size_t)s->rope, sizeof *mine);
    for (int32_t j = 0; j < n; j++)
        vector_of(f, q->qkv + (first + j + 1) * width - latents_dim(s), first + j, c + j * s->rank,
                  turned + j * s->rope);
    for (int32_t h = 0; h < s->heads; h++) {
        const float *query = q->qkv + row * width + h * own;
        double top = -INFINITY, sum = 0;
        turn(s, f->angles + (int64_t)row * s->rope, query + s->nope, mine);
        for (int32_t j = 0; j < n; j++) {
            double score = 0;
            for (int i = 0; i < s->nope; i++) {
                double key = 0;
                for (int r = 0; r < s->rank; r++) key += weight_k(f, h, r, i) * c[j * s->rank + r];
                score += key * query[i];
            }
            for (int i = 0; i < s->rope; i++) score += mine[i] * turned[j * s->rope + i];
            p[j] = score / sqrt(s->nope + s->rope);
            top = fmax(top, p[j]);
        }
        for (int32_t j = 0; j < n; j++) sum += p[j] = exp(p[j] - top);
        for (int i = 0; i < s->v_dim; i++) {
            double want = 0;
            for (int r = 0; r < s->rank; r++) value[r] = 0;
            for (int32_t j = 0; j < n; j++)
                for (int r = 0; r < s->rank; r++) value[r] += p[j] / sum * c[j * s->rank + r];
            for (int r = 0; r < s->rank; r++)
                want += f->v[((int64_t)h * s->v_dim + i) * s->rank + r] * value[r];
            op_near(q->out[row * out_width(&shape) + h * s->v_dim + i], want, 3e-5, "latents", row);
        }
    }
    free(c), free(turned), free(p), free(value), free(mine);
}

static void step(struct backend *be, const struct latents *s, const struct kv_store *kv,
                 struct latent_args a, const float *inv_freq, struct seq *seqs,
                 const int32_t rows[MAX_SEQS]) {
    const struct shape shape = latents_shape(s);
    struct step t;
    struct err err = {0};
    int64_t begin;
    void *work;
    step_init(&t, &shape, seqs, rows);
    float *in = latents_rows(s, &a, &t, &begin);
    float *angles = op_floats((int64_t)t.batch.n_rows * s->rope);
    float *out = op_floats(t.batch.n_rows * latents_out_width(s));
    a.q = in, a.latents = in + begin, a.cos_sin = angles;
    assert_int_equal(
        be->ops->mem_alloc(be, be->ops->latent_bytes(be, t.batch.n_rows, &a), &work, &err), 0);
    assert_int_equal(be->ops->rope_angles(be, angles, &t.batch, inv_freq, NULL, s->rope, 1), 0);
    assert_int_equal(be->ops->latent_attention(be, out, kv, &t.batch, &a, work), 0);
    latents_take(s, &t, seqs, rows, out);
    be->ops->mem_free(be, work);
    free(in), free(angles), free(out);
}

static void angles_of(struct backend *be, float *angles, const float *inv_freq, int32_t rope,
                      int32_t n) {
    int32_t *positions = malloc((size_t)n * sizeof *positions);
    for (int32_t i = 0; i < n; i++) positions[i] = i;
    const struct batch b = {.n_rows = n, .positions = positions};
    assert_int_equal(be->ops->rope_angles(be, angles, &b, inv_freq, NULL, rope, 1), 0);
    free(positions);
}

static void check_shape(struct backend *be, const struct latents *s) {
    const int32_t lens[SEQS] = {23, 9};
    const struct shape shape = latents_shape(s);
    float *k = op_floats((int64_t)s->heads * s->rank * s->nope);
    float *v = op_floats((int64_t)s->heads * s->v_dim * s->rank), *norm = op_floats(s->rank);
    float *inv_freq = op_floats(s->rope / 2), *angles = op_floats(lens[0] * s->rope);
    struct weight *wk = calloc((size_t)s->heads, sizeof *wk),
                  *wv = calloc((size_t)s->heads, sizeof *wv);
    struct seq whole[MAX_SEQS] = {0}, chunks[MAX_SEQS] = {0};
    struct err err = {0};
    latents_weights(be, s, k, v, wk, wv);
    struct latent_args a = latents_args(s, wk, wv);
    a.norm = norm;
    angles_of(be, angles, inv_freq, s->rope, lens[0]);
    struct kv_store kv = store_of(&shape, seqs_init(whole, SEQS, &shape, lens)), other = kv;
    (void)seqs_init(chunks, SEQS, &shape, lens);
    assert_int_equal(be->ops->kv_store_init(be, &kv, &err), 0);
    assert_int_equal(be->ops->kv_store_init(be, &other, &err), 0);
    for (int i = 0; i < SEQS; i++) {
        whole[i].qkv = op_floats(lens[i] * row_width(&shape));
        chunks[i].qkv = malloc((size_t)(lens[i] * row_width(&shape)) * sizeof(float));
        memcpy(chunks[i].qkv, whole[i].qkv, (size_t)(lens[i] * row_width(&shape)) * sizeof(float));
    }
    step(be, s, &kv, a, inv_freq, whole, (int32_t[]){lens[0], lens[1], 0, 0});
    static const int32_t parts[][MAX_SEQS] = {{1, 0}, {5, 3}, {1, 1}, {16, 5}};
    for (int i = 0; i < 4; i++) step(be, s, &other, a, inv_freq, chunks, parts[i]);
    const struct reference f = {s, k, v, norm, angles};
    for (int i = 0; i < SEQS; i++) {
        assert_int_equal(chunks[i].done, lens[i]);
        op_same_bits(chunks[i].out, whole[i].out, lens[i] * out_width(&shape), "chunks");
        for (int32_t r = 0; r < lens[i]; r++) check_row(&f, &whole[i], r);
    }
    latents_release(be, s, wk, wv);
    be->ops->kv_store_release(be, &kv);
    be->ops->kv_store_release(be, &other);
    seqs_release(whole), seqs_release(chunks);
    free(k), free(v), free(norm), free(inv_freq), free(angles), free(wk), free(wv);
}

static void check_all(struct backend *be) {
    static const struct latents all[] = {
        {5, 12, 8, 32, 16, 0, true, DTYPE_F32, ROPE_INTERLEAVED, 100},
        {3, 7, 6, 33, 9, 3, false, DTYPE_F32, ROPE_HALF, 100},
        {1, 16, 16, 40, 24, -1, true, DTYPE_F32, ROPE_INTERLEAVED, 6}, // a window
        {9, 4, 4, 16, 5, 1, true, DTYPE_F32, ROPE_HALF, 1},            // sees itself alone
    };
    op_seed(3);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_shape(be, &all[i]);
}

static void test_latent(void **state) {
    op_each_backend(check_all);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_latent)};
    return cmocka_run_group_tests_name("latent", tests, NULL, NULL);
}
