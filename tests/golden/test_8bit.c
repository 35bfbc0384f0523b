// Weights of 8 bits in every family: the logits are exactly those of the rounded weights, differ from
// the references by no more than the rounding explains, and do not depend on chunks.
#include "base/log.h"
#include "engine/model/checkpoint.h"
#include "engine/model/model.h"
#include "kernels/fp8.h"
#include "kernels/int8.h"
#include "tests/golden/runner.h"
#include "tests/unit/tmp_dir.h"

enum { N_TOKENS = 96 };

// rms: how far the logits may differ with integers and with e4m3, in units of their spread: half as
// much again as was measured. The models are small and random; a trained model loses less
// (tests/e2e/int8.test.mjs has the demo model's bounds).
static const struct family {
    const char *name;
    double rms[3]; // by enum weight_format
} families[] = {{"llama", {0, 0.08, 0.29}},    {"mistral", {0, 0.07, 0.27}},
                {"qwen2", {0, 0.08, 0.29}},    {"qwen3", {0, 0.05, 0.21}},
                {"gpt2", {0, 0.02, 0.08}},     {"gptj", {0, 0.03, 0.12}},
                {"gpt_neox", {0, 0.03, 0.12}}, {"bloom", {0, 0.04, 0.17}},
                {"opt", {0, 0.03, 0.12}},      {"xglm", {0, 0.02, 0.08}}};
enum { N_FAMILIES = sizeof families / sizeof *families };

static struct tmp_dir dir;

static int setup(void **state) {
    log_set_level(LOG_WARN);
    tmp_dir_open(&dir);
    return 0;
}
static int teardown(void **state) {
    tmp_dir_close(&dir);
    return 0;
}

// --- the weights that 8 bits leave, as a folder in F32

static float element(const struct tensor *t, int64_t i) {
    if (t->dtype == DTYPE_F32) return ((const float *)t->data)[i];
    uint16_t half = ((const uint16_t *)t->data)[i];
    return t->dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static void leave_8bit(const struct tensor *t, bool turned, enum weight_format weights,
                       float *out) {
    int64_t rows = t->shape[turned], cols = t->shape[!turned];
    struct tensor_view v = {t->data,           t->dtype,          rows, cols,
                            turned ? 1 : cols, turned ? rows : 1, NULL, 0};
    uint8_t *q = malloc((size_t)cols);
    bool fp8 = weights == WEIGHTS_FP8;
    float *work = malloc((size_t)cols * sizeof *work), scale;
    for (int64_t r = 0; r < rows; r++) {
        int rc = fp8 ? fp8_quantize_row(&v, r, q, 1, work, &scale)
                     : int8_quantize_row(&v, r, (int8_t *)q, 1, work, &scale);
        assert_int_equal(rc, 0);
        for (int64_t c = 0; c < cols; c++)
            out[r * v.row_stride + c * v.col_stride] =
                scale * (fp8 ? e4m3_to_f32(q[c]) : (float)(int8_t)q[c]);
    }
    free(q);
    free(work);
}

static void write_left_weights(const char *from, enum weight_format weights) {
    struct model_config config;
    struct checkpoint *cp = NULL;
    struct safetensors_writer *w = NULL;
    struct err err = {0};
    uint8_t roles[500];
    struct tensor list[500];
    assert_int_equal(model_config_load(&config, from, &err), 0);
    assert_int_equal(checkpoint_open(&cp, from, &err), 0);
    size_t n = checkpoint_count(cp);
    assert_true(n <= 500);
    assert_int_equal(model_tensor_roles(&config, cp, roles, NULL, &err), 0);
    for (size_t i = 0; i < n; i++) {
        list[i] = *checkpoint_at(cp, i);
        list[i].dtype = DTYPE_F32;
    }
    assert_int_equal(safetensors_create(&w, tmp_path(&dir, "model.safetensors"), list, n, &err), 0);
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = checkpoint_at(cp, i);
        size_t count = t->bytes / dtype_size(t->dtype);
        float *values = malloc((count + 1) * sizeof *values);
        if (roles[i] == TENSOR_MATRIX || roles[i] == TENSOR_TRANSPOSED)
            leave_8bit(t, roles[i] == TENSOR_TRANSPOSED, weights, values);
        else if (dtype_size(t->dtype) == 1) // a mask that the model does not use
            memset(values, 0, count * sizeof *values);
        else
            for (size_t k = 0; k < count; k++) values[k] = element(t, (int64_t)k);
        assert_int_equal(safetensors_write(w, values, count * sizeof *values, &err), 0);
        free(values);
    }
    assert_int_equal(safetensors_finish(w, &err), 0);
    checkpoint_close(cp);
    tmp_copy(&dir, from, "config.json");
}

// --- logits

static struct rows logits_of(const char *path, enum weight_format weights, const int32_t *ids,
                             int32_t chunk) {
    struct engine *e = engine_for_weights(path, weights, chunk, 8, 0);
    struct rows rows = rows_new(e->info.n_vocab);
    struct outcome o;
    struct engine_turn turn = turn_for(e, 1, ids, N_TOKENS, 0, 0);
    turn.score_only = true;
    turn.on_logits = rows_keep;
    turn.on_logits_ctx = &rows;
    run_turn(e, &turn, &o);
    assert_int_equal(o.finish, FINISH_LENGTH);
    assert_int_equal(rows.n_seen, N_TOKENS);
    engine_close(e);
    return rows;
}

struct distance {
    double worst, rms; // in units of the spread
    double same_best;  // share of rows
};

static struct distance distance(const float *got, const float *want, int32_t vocab) {
    int64_t n = (int64_t)N_TOKENS * vocab, same = 0;
    double sum = 0, squares = 0, off = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        sum += want[i];
        squares += (double)want[i] * want[i];
        off += d * d;
        worst = fmax(worst, d);
    }
    for (int64_t r = 0; r < N_TOKENS; r++) {
        int32_t best[2] = {0};
        for (int32_t i = 1; i < vocab; i++) {
            if (got[r * vocab + i] > got[r * vocab + best[0]]) best[0] = i;
            if (want[r * vocab + i] > want[r * vocab + best[1]]) best[1] = i;
        }
        same += best[0] == best[1];
    }
    double spread = sqrt(squares / (double)n - sum / (double)n * (sum / (double)n));
    return (struct distance){worst / spread, sqrt(off / (double)n) / spread,
                             (double)same / N_TOKENS};
}

static struct safetensors *open_reference(const struct family *f, const int32_t **ids,
                                          const float **logits) {
    char path[200];
    struct safetensors *s = NULL;
    struct err err = {0};
    snprintf(path, sizeof path, "tests/fixtures/models/%s/golden.safetensors", f->name);
    if (safetensors_open(&s, path, &err) < 0) fail_msg("%s", err.text);
    *ids = safetensors_find(s, "input_ids")->data;
    *logits = safetensors_find(s, "logits")->data;
    return s;
}

static void check_weights(const struct family *f, enum weight_format weights) {
    const int32_t *ids;
    const float *want;
    char path[200];
    snprintf(path, sizeof path, "tests/fixtures/models/%s", f->name);
    struct safetensors *s = open_reference(f, &ids, &want);
    struct rows got = logits_of(path, weights, ids, N_TOKENS);
    struct distance d = distance(got.data, want, got.vocab);
    print_message("%s, %s: off by %.4f of the spread, %.4f at most; best the same in %.0f %%\n",
                  f->name, weights == WEIGHTS_FP8 ? "fp8" : "int8", d.rms, d.worst,
                  100 * d.same_best);
    write_left_weights(path, weights);
    struct rows left = logits_of(dir.path, WEIGHTS_OWN, ids, N_TOKENS);
    struct distance exact = distance(got.data, left.data, got.vocab);
    static const int32_t chunks[] = {1, 7, 32, 95};
    for (int i = 0; i < 4; i++) {
        struct rows same = logits_of(path, weights, ids, chunks[i]);
        assert_memory_equal(same.data, got.data,
                            (size_t)N_TOKENS * (size_t)got.vocab * sizeof(float));
        free(same.data);
    }
    free(got.data);
    free(left.data);
    safetensors_close(s);
    if (exact.worst > 2e-4) fail_msg("%.3g from the weights that are left", exact.worst);
    if (d.rms > f->rms[weights]) fail_msg("%.3g from the reference", d.rms);
}

static void test_family(void **state) {
    check_weights(*state, WEIGHTS_INT8);
    check_weights(*state, WEIGHTS_FP8);
}

int main(void) {
    struct CMUnitTest tests[N_FAMILIES];
    for (int i = 0; i < N_FAMILIES; i++)
        tests[i] = (struct CMUnitTest){families[i].name, test_family, NULL, NULL,
                                       (void *)(uintptr_t)&families[i]};
    return cmocka_run_group_tests(tests, setup, teardown);
}
