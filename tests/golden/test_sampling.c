// The distribution that a draw is made from, against transformers' logits processors (see
// tests/fixtures).
#include "base/json.h"
#include "engine/run/sampler.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURE "tests/fixtures/text/sampling.golden.json"
#define MAX_EOS 8

// Parameters of the fixture that struct sampling_params does not have in this version. Cases with
// one of them are counted, and the count is asserted: nothing is skipped silently.
static const char *const not_in_this_version[] = {"typical_p"};
enum { N_CASES = 44, N_NOT_IN_THIS_VERSION = 2 };

struct golden_case {
    struct sampling_params params;
    int32_t eos[MAX_EOS];
    int32_t n_eos;
    int32_t n_vocab, n_history;
    float *logits, *probs; // (n_vocab)
    int32_t *history;      // (n_history)
};

static bool is_missing_here(const char *name) {
    for (size_t i = 0; i < sizeof not_in_this_version / sizeof *not_in_this_version; i++)
        if (strcmp(name, not_in_this_version[i]) == 0) return true;
    return false;
}

static int32_t read_ids(const cJSON *array, int32_t *out, int32_t max) {
    int32_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        assert_true(n < max);
        out[n++] = (int32_t)item->valuedouble;
    }
    return n;
}

static float *read_floats(const cJSON *array, int32_t *n) {
    *n = cJSON_GetArraySize(array);
    assert_true(*n > 0);
    float *out = malloc((size_t)*n * sizeof *out);
    assert_non_null(out);
    int32_t i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) out[i++] = (float)item->valuedouble;
    return out;
}

static void read_bad_words(const cJSON *words, struct sampling_params *p) {
    const cJSON *word;
    cJSON_ArrayForEach(word, words) {
        int32_t ids[SAMPLING_WORD_TOKENS];
        size_t n = (size_t)cJSON_GetArraySize(word);
        read_ids(word, ids, SAMPLING_WORD_TOKENS);
        assert_int_equal(sampling_words_add_ids(&p->bad_words, "bad_words", ids, n, NULL), 0);
    }
}

// False: the case needs something that this version does not have.
static bool read_params(const cJSON *params, struct golden_case *c) {
    struct sampling_params *p = &c->params;
    sampling_params_init(p);
    const cJSON *v;
    cJSON_ArrayForEach(v, params) {
        const char *name = v->string;
        if (strcmp(name, "temperature") == 0)
            p->temperature = (float)v->valuedouble;
        else if (strcmp(name, "top_k") == 0)
            p->top_k = (int32_t)v->valuedouble;
        else if (strcmp(name, "top_p") == 0)
            p->top_p = (float)v->valuedouble;
        else if (strcmp(name, "min_p") == 0)
            p->min_p = (float)v->valuedouble;
        else if (strcmp(name, "repetition_penalty") == 0)
            p->repetition_penalty = (float)v->valuedouble;
        else if (strcmp(name, "bad_words") == 0)
            read_bad_words(v, p);
        else if (strcmp(name, "min_length_left") == 0)
            p->min_tokens = (int32_t)v->valuedouble;
        else if (strcmp(name, "eos") == 0)
            c->n_eos = read_ids(v, c->eos, MAX_EOS);
        else if (is_missing_here(name))
            return false;
        else
            fail_msg("the fixture has an unknown parameter: %s", name);
    }
    return true;
}

static void read_case(const cJSON *json, struct golden_case *c) {
    const cJSON *history = cJSON_GetObjectItemCaseSensitive(json, "history");
    int32_t n_probs, n_history = cJSON_GetArraySize(history);
    c->logits = read_floats(cJSON_GetObjectItemCaseSensitive(json, "logits"), &c->n_vocab);
    c->probs = read_floats(cJSON_GetObjectItemCaseSensitive(json, "probs"), &n_probs);
    assert_int_equal(n_probs, c->n_vocab);
    c->history = malloc((size_t)n_history * sizeof *c->history);
    assert_non_null(c->history);
    c->n_history = read_ids(history, c->history, n_history);
}

static void release_case(struct golden_case *c) {
    free(c->logits);
    free(c->probs);
    free(c->history);
}

static void compare(int index, const struct golden_case *c) {
    struct err err = {0};
    struct sampler s;
    struct sampler_work w;
    assert_int_equal(sampling_params_check(&c->params, c->n_vocab, &err), 0);
    assert_int_equal(sampler_init(&s, c->n_vocab, &err), 0);
    assert_int_equal(sampler_work_init(&w, c->n_vocab, &err), 0);
    assert_int_equal(
        sampler_begin(&s, &c->params, 0, c->eos, c->n_eos, c->history, c->n_history, &err), 0);
    float *got = malloc((size_t)c->n_vocab * sizeof *got);
    assert_non_null(got);
    assert_int_equal(sampler_probabilities(&s, &w, c->logits, got, &err), 0);
    for (int32_t id = 0; id < c->n_vocab; id++) {
        float want = c->probs[id];
        // The same tokens survive; below 1e-12 we drop what no draw could reach.
        if (got[id] > 0 ? want == 0 : want > 1e-12f)
            fail_msg("case %d, token %d: %g, expected %g", index, id, (double)got[id],
                     (double)want);
        if (fabsf(got[id] - want) > 1e-7f + 2e-5f * want)
            fail_msg("case %d, token %d: %.9g, expected %.9g", index, id, (double)got[id],
                     (double)want);
    }
    free(got);
    sampler_work_release(&w);
    sampler_release(&s);
}

static void test_against_transformers(void **state) {
    struct err err = {0};
    cJSON *cases = json_parse_file(FIXTURE, &json_limits_file, &err);
    if (!cases) fail_msg("%s", err.text);
    int n = 0, n_missing = 0;
    const cJSON *json;
    cJSON_ArrayForEach(json, cases) {
        struct golden_case c = {0};
        if (read_params(cJSON_GetObjectItemCaseSensitive(json, "params"), &c)) {
            read_case(json, &c);
            compare(n, &c);
        } else {
            n_missing++;
        }
        release_case(&c);
        n++;
    }
    cJSON_Delete(cases);
    print_message("%d cases agree, %d need a parameter that this version does not have (%s)\n",
                  n - n_missing, n_missing, not_in_this_version[0]);
    assert_int_equal(n, N_CASES);
    assert_int_equal(n_missing, N_NOT_IN_THIS_VERSION);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_transformers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
