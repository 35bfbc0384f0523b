// Each field of sampling_params: its bounds are accepted, values beyond them are refused by name.
#include "engine/sampling/params.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { N_VOCAB = 100 };

static struct sampling_params defaults(void) {
    struct sampling_params p;
    sampling_params_init(&p);
    return p;
}

static void accepts(const struct sampling_params *p) {
    struct err err = {0};
    if (sampling_params_check(p, N_VOCAB, &err) != 0) fail_msg("refused: %s", err.text);
}

// The refusal names the field.
static void refuses(const struct sampling_params *p, const char *name) {
    struct err err = {0};
    assert_int_equal(sampling_params_check(p, N_VOCAB, &err), E_INVAL);
    assert_int_equal(err.code, E_INVAL);
    if (!strstr(err.text, name)) fail_msg("'%s' does not name %s", err.text, name);
}

static void test_defaults(void **state) {
    struct sampling_params p = defaults();
    accepts(&p);
    assert_true(p.temperature == 1 && p.top_p == 1 && p.repetition_penalty == 1);
    assert_true(p.top_k == 0 && p.min_p == 0 && p.presence_penalty == 0 &&
                p.frequency_penalty == 0);
    assert_true(!p.has_seed && !p.ignore_eos && p.max_tokens == 0 && p.min_tokens == 0);
    assert_true(p.n_bias == 0 && p.n_stop == 0 && p.n_bad == 0 && p.top_logprobs == 0);
}

struct float_field {
    const char *name;
    size_t offset;
    float min, max, below, above;
};

static void test_floats(void **state) {
#define FIELD(f) #f, offsetof(struct sampling_params, f)
    static const struct float_field fields[] = {
        {FIELD(temperature), 0, 100, -0.001f, 100.001f},
        {FIELD(top_p), 1e-30f, 1, 0, 1.0001f},
        {FIELD(min_p), 0, 1, -1e-30f, 1.0001f},
        {FIELD(repetition_penalty), 0.01f, 100, 0.0099f, 100.001f},
        {FIELD(presence_penalty), -100, 100, -100.001f, 100.001f},
        {FIELD(frequency_penalty), -100, 100, -100.001f, 100.001f},
    };
#undef FIELD
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct float_field *f = &fields[i];
        struct sampling_params p = defaults();
        float *v = (float *)((char *)&p + f->offset);
        *v = f->min;
        accepts(&p);
        *v = f->max;
        accepts(&p);
        const float bad[] = {f->below, f->above, NAN, INFINITY, -INFINITY};
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            *v = bad[k];
            refuses(&p, f->name);
        }
    }
}

static void test_integers(void **state) {
    struct sampling_params p = defaults();
    p.top_k = p.max_tokens = p.min_tokens = INT32_MAX;
    p.deadline_us = (int64_t)86400000 * 1000;
    p.top_logprobs = SAMPLING_MAX_TOP_LOGPROBS;
    p.seed = UINT64_MAX;
    accepts(&p);
    p = defaults(), p.top_k = -1, refuses(&p, "top_k");
    p = defaults(), p.max_tokens = -1, refuses(&p, "max_tokens");
    p = defaults(), p.min_tokens = -1, refuses(&p, "min_tokens");
    p = defaults(), p.deadline_us = -1, refuses(&p, "deadline_ms");
    p = defaults(), p.deadline_us = (int64_t)86400000 * 1000 + 1, refuses(&p, "deadline_ms");
    p = defaults(), p.top_logprobs = -1, refuses(&p, "top_logprobs");
    p = defaults(), p.top_logprobs = SAMPLING_MAX_TOP_LOGPROBS + 1, refuses(&p, "top_logprobs");
}

static void test_bias(void **state) {
    struct sampling_params p = defaults();
    p.n_bias = 3;
    p.bias[0] = (struct logit_bias){0, -100};
    p.bias[1] = (struct logit_bias){N_VOCAB - 1, 100};
    p.bias[2] = (struct logit_bias){5, -INFINITY};
    accepts(&p);
    const float bad[] = {-100.1f, 100.1f, NAN, INFINITY};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        p.bias[1].bias = bad[k];
        refuses(&p, "logit_bias");
    }
    p.bias[1] = (struct logit_bias){-1, 0}, refuses(&p, "logit_bias");
    p.bias[1] = (struct logit_bias){N_VOCAB, 0}, refuses(&p, "logit_bias");
    p = defaults(), p.n_bias = -1, refuses(&p, "logit biases");
    p = defaults(), p.n_bias = SAMPLING_MAX_BIAS + 1, refuses(&p, "logit biases");
}

static void test_stop(void **state) {
    struct sampling_params p = defaults();
    p.n_stop = SAMPLING_MAX_STOP;
    for (int i = 0; i < SAMPLING_MAX_STOP; i++) {
        memset(p.stop[i], 'x', SAMPLING_STOP_BYTES);
        p.stop[i][SAMPLING_STOP_BYTES - 1] = 0;
    }
    accepts(&p);
    p.stop[2][SAMPLING_STOP_BYTES - 1] = 'x'; // not terminated
    refuses(&p, "stop[2]");
    p.stop[2][0] = 0;
    refuses(&p, "stop[2]");
    p = defaults(), p.n_stop = -1, refuses(&p, "stop strings");
    p = defaults(), p.n_stop = SAMPLING_MAX_STOP + 1, refuses(&p, "stop strings");
}

static void test_bad_words(void **state) {
    struct sampling_params p = defaults();
    p.n_bad = 2;
    p.bad[0][0] = 0;
    for (int i = 0; i < SAMPLING_BAD_TOKENS; i++) p.bad[1][i] = N_VOCAB - 1;
    accepts(&p);
    p.bad[1][3] = N_VOCAB, refuses(&p, "bad_words[1]");
    p.bad[1][3] = -2, refuses(&p, "bad_words[1]");
    p.bad[1][3] = -1, refuses(&p, "bad_words[1]"); // tokens behind the padding
    p = defaults(), p.n_bad = 1, refuses(&p, "bad_words[0]");
    p = defaults(), p.n_bad = -1, refuses(&p, "bad words");
    p = defaults(), p.n_bad = SAMPLING_MAX_BAD + 1, refuses(&p, "bad words");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_floats),
        cmocka_unit_test(test_integers), cmocka_unit_test(test_bias),
        cmocka_unit_test(test_stop),     cmocka_unit_test(test_bad_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
