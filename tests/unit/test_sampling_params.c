// Each field of sampling_params: its bounds are accepted, values beyond them are refused by name.
#include "engine/sampling/params.h"
#include "tests/cmocka.h"
#include <math.h>
#include <string.h>

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
    assert_true(p.n_bias == 0 && p.stop.n_texts == 0 && p.stop.n_lists == 0 &&
                p.bad_words.n_lists == 0 && p.top_logprobs == 0);
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
    p = defaults(), p.n_bias = -1, refuses(&p, "logit_bias");
    p = defaults(), p.n_bias = SAMPLING_MAX_BIAS + 1, refuses(&p, "logit_bias");
}

// Entries are read back as they were added. An empty one, a long one or one too many changes
// nothing.
static void test_words_are_packed(void **state) {
    struct sampling_params p = defaults();
    struct sampling_words *w = &p.stop;
    char text[SAMPLING_WORD_BYTES + 1];
    int32_t ids[SAMPLING_WORD_TOKENS + 1], n;
    memset(text, 'x', sizeof text);
    for (int i = 0; i <= SAMPLING_WORD_TOKENS; i++) ids[i] = i;
    assert_int_equal(sampling_words_add_text(w, "stop", text, SAMPLING_WORD_BYTES - 1, NULL), 0);
    assert_int_equal(sampling_words_add_text(w, "stop", "ab", 2, NULL), 0);
    assert_int_equal(sampling_words_add_ids(w, "stop", ids, SAMPLING_WORD_TOKENS, NULL), 0);
    assert_int_equal(sampling_words_add_ids(w, "stop", ids + 5, 2, NULL), 0);
    const struct sampling_words before = *w;
    const struct {
        const char *text;
        size_t len;
    } wrong[] = {{"", 0}, {text, SAMPLING_WORD_BYTES}, {"a\0b", 3}};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(sampling_words_add_text(w, "stop", wrong[i].text, wrong[i].len, NULL),
                         E_INVAL);
    assert_int_equal(sampling_words_add_ids(w, "stop", ids, 0, NULL), E_INVAL);
    assert_int_equal(sampling_words_add_ids(w, "stop", ids, SAMPLING_WORD_TOKENS + 1, NULL),
                     E_INVAL);
    assert_memory_equal(w, &before, sizeof before);
    accepts(&p);
    assert_int_equal(strlen(sampling_word_text(w, 0)), SAMPLING_WORD_BYTES - 1);
    assert_string_equal(sampling_word_text(w, 1), "ab");
    assert_memory_equal(sampling_word_ids(w, 0, &n), ids, sizeof ids - sizeof *ids);
    assert_int_equal(n, SAMPLING_WORD_TOKENS);
    assert_int_equal(sampling_word_ids(w, 1, &n)[1], 6);
    assert_int_equal(n, 2);
}

static void test_words_are_bounded(void **state) {
    struct sampling_params p = defaults();
    struct sampling_words *w = &p.bad_words;
    struct err err = {0};
    int32_t ids[SAMPLING_WORD_TOKENS] = {0};
    char text[SAMPLING_WORD_BYTES];
    int n = 0;
    memset(text, 'x', sizeof text);
    while (sampling_words_add_ids(w, "bad_words", ids, 1, &err) == 0) n++;
    assert_int_equal(n, SAMPLING_MAX_WORDS);
    assert_non_null(strstr(err.text, "bad_words"));
    n = 0;
    while (sampling_words_add_text(w, "bad_words", "a", 1, NULL) == 0) n++;
    assert_int_equal(n, SAMPLING_MAX_WORDS);
    accepts(&p);
    p = defaults(), n = 0;
    while (sampling_words_add_ids(w, "bad_words", ids, SAMPLING_WORD_TOKENS, NULL) == 0) n++;
    assert_int_equal(n, SAMPLING_LISTS_TOKENS / SAMPLING_WORD_TOKENS);
    n = 0;
    while (sampling_words_add_text(w, "bad_words", text, sizeof text - 1, NULL) == 0) n++;
    assert_int_equal(n, SAMPLING_TEXTS_BYTES / SAMPLING_WORD_BYTES);
    accepts(&p);
}

static void test_broken_words(void **state) {
    struct sampling_params p = defaults();
    struct sampling_words *w = &p.bad_words;
    w->n_lists = 2;
    w->list_ends[0] = 1;
    w->list_ends[1] = 4;
    for (int i = 1; i < 4; i++) w->ids[i] = N_VOCAB - 1;
    accepts(&p);
    w->ids[3] = N_VOCAB, refuses(&p, "bad_words[1]");
    w->ids[3] = -1, refuses(&p, "bad_words[1]");
    w->ids[3] = 0, w->list_ends[0] = 4, refuses(&p, "bad_words"); // the second is empty
    w->list_ends[0] = 5, refuses(&p, "bad_words");                // its end runs backwards
    w->list_ends[0] = 1, w->list_ends[1] = 2 + SAMPLING_WORD_TOKENS, refuses(&p, "bad_words");
    w->list_ends[1] = UINT16_MAX, refuses(&p, "bad_words");
    p = defaults(), w->n_lists = -1, refuses(&p, "bad_words");
    p = defaults(), w->n_lists = SAMPLING_MAX_WORDS + 1, refuses(&p, "bad_words");
    p = defaults(), w->n_texts = -1, refuses(&p, "bad_words");
    p = defaults(), w->n_texts = 1, w->text_ends[0] = 3;
    strcpy(w->texts, "ab");
    accepts(&p);
    w->texts[2] = 'c', refuses(&p, "bad_words"); // not terminated
    strcpy(w->texts, "a");
    refuses(&p, "bad_words"); // ends before its end
    w->text_ends[0] = 1, w->texts[0] = 0, refuses(&p, "bad_words");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),         cmocka_unit_test(test_floats),
        cmocka_unit_test(test_integers),         cmocka_unit_test(test_bias),
        cmocka_unit_test(test_words_are_packed), cmocka_unit_test(test_words_are_bounded),
        cmocka_unit_test(test_broken_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
