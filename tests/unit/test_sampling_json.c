// Sampling parameters from and to JSON: every key, strict types, ranges, nothing changed by a
// refusal.
#include "base/json.h"
#include "engine/sampling/json.h"
#include "tests/cmocka.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VOCAB 1000

static struct turn_sampling fresh(void) {
    struct turn_sampling s = {0};
    sampling_params_init(&s.params);
    return s;
}

static void takes_every_key(void **state) {
    struct turn_sampling s = fresh();
    struct err err = {0};
    int rc =
        sampling_json_apply(&s,
                            "{\"temperature\":0.7,\"top_k\":40,\"top_p\":0.9,\"min_p\":0.05,"
                            "\"repetition_penalty\":1.1,\"presence_penalty\":-1,"
                            "\"frequency_penalty\":2,\"seed\":\"18446744073709551615\",\"max_"
                            "tokens\":5,\"min_tokens\":1,\"stop\":[\"a\",[9],\"bc\"],"
                            "\"top_p_decay\":0.9,\"top_p_min\":0.25,\"top_p_reset_ids\":3,"
                            "\"start_id\":4,"
                            "\"logit_bias\":{\"7\":-100,\"999\":3.5},\"ignore_eos\":true,"
                            "\"logprobs\":true,\"top_logprobs\":20,"
                            "\"deadline_ms\":1500,\"bad_words\":[[1,2],[3],\"no\"],\"unknown\":1}",
                            VOCAB, &err);
    if (rc < 0) fail_msg("%s", err.text);
    const struct sampling_params *p = &s.params;
    assert_true(p->temperature == 0.7f && p->top_p == 0.9f && p->min_p == 0.05f &&
                p->repetition_penalty == 1.1f);
    assert_true(p->presence_penalty == -1 && p->frequency_penalty == 2);
    assert_true(p->has_seed && p->seed == UINT64_MAX);
    assert_int_equal(p->top_k, 40);
    assert_int_equal(p->max_tokens, 5);
    assert_int_equal(p->min_tokens, 1);
    assert_int_equal(p->stop.n_texts, 2);
    assert_string_equal(sampling_word_text(&p->stop, 1), "bc");
    assert_int_equal(p->stop.n_lists, 1);
    assert_int_equal(p->stop.ids[0], 9);
    assert_int_equal(p->n_bias, 2);
    assert_int_equal(p->bias[0].id, 7);
    assert_true(p->bias[1].bias == 3.5f);
    assert_true(p->ignore_eos && p->logprobs);
    assert_int_equal(p->top_logprobs, 20);
    assert_int_equal(p->deadline_us, 1500000);
    assert_true(p->top_p_decay == 0.9f && p->top_p_min == 0.25f);
    assert_int_equal(p->top_p_reset_ids, 3);
    assert_int_equal(p->start_id, 4);
    int32_t n;
    assert_int_equal(p->bad_words.n_lists, 2);
    assert_int_equal(sampling_word_ids(&p->bad_words, 0, &n)[1], 2);
    assert_int_equal(n, 2);
    assert_int_equal(*sampling_word_ids(&p->bad_words, 1, &n), 3);
    assert_int_equal(n, 1);
    assert_int_equal(p->bad_words.n_texts, 1);
    assert_string_equal(sampling_word_text(&p->bad_words, 0), "no");
    assert_int_equal(sampling_params_check(p, VOCAB, &err), 0); // the engine agrees
}

static void comes_back_as_it_was(void **state) {
    struct turn_sampling s = fresh(), again = fresh();
    struct buf out;
    assert_int_equal(
        sampling_json_apply(
            &s,
            "{\"temperature\":0.1,\"top_p\":0.333333333,\"stop\":\"\\\"\\n\",\"seed\":3,"
            "\"logit_bias\":{\"5\":0.1},\"bad_words\":[[9]],\"logprobs\":true}",
            VOCAB, NULL),
        0);
    buf_init(&out, 1 << 20);
    assert_int_equal(sampling_json_write(&out, &s, SAMPLING_EVERY_KEY), 0);
    struct err err = {0};
    if (sampling_json_apply(&again, out.data, VOCAB, &err) < 0)
        fail_msg("%s: %s", err.text, out.data);
    again.set = s.set;
    assert_memory_equal(&again, &s, sizeof s);
    buf_release(&out);
}

static void writes_only_what_was_given(void **state) {
    struct turn_sampling s = fresh();
    struct buf out;
    assert_int_equal(
        sampling_json_apply(&s, "{\"top_k\":3,\"temperature\":null,\"other\":[1]}", VOCAB, NULL),
        0);
    buf_init(&out, 1 << 20);
    sampling_json_write(&out, &s, s.set);
    assert_string_equal(out.data, "{\"top_k\":3}");
    buf_reset(&out);
    sampling_json_write(&out, &s, 0);
    assert_string_equal(out.data, "{}");
    buf_reset(&out);
    sampling_json_write(&out, &s, SAMPLING_EVERY_KEY);
    assert_null(strstr(out.data, "seed")); // there is none yet
    buf_release(&out);
}

static void a_later_object_goes_over_an_earlier_one(void **state) {
    struct turn_sampling s = fresh();
    assert_int_equal(
        sampling_json_apply(&s,
                            "{\"top_k\":3,\"stop\":[\"a\",\"b\"],\"logit_bias\":{\"1\":1,\"2\":2}}",
                            VOCAB, NULL),
        0);
    assert_int_equal(sampling_json_apply(&s, "{\"temperature\":0,\"stop\":\"z\",\"logit_bias\":{}}",
                                         VOCAB, NULL),
                     0);
    assert_int_equal(s.params.top_k, 3);
    assert_int_equal(s.params.stop.n_texts, 1);
    assert_string_equal(s.params.stop.texts, "z");
    assert_int_equal(s.params.n_bias, 0);
    assert_int_equal(sampling_json_apply(&s, NULL, VOCAB, NULL), 0);
    assert_int_equal(sampling_json_apply(&s, "{\"stop\":[]}", VOCAB, NULL), 0);
    assert_int_equal(s.params.stop.n_texts, 0);
}

// Merging the layers gives the same as applying their objects one after the other.
static void layers_lie_over_each_other(void **state) {
    static const char *const layers[] = {
        "{\"temperature\":0.5,\"seed\":7,\"stop\":[\"a\",\"b\"],\"deadline_ms\":9,\"ignore_eos\":"
        "true}",
        "{\"temperature\":null,\"top_k\":3,\"stop\":[],\"logit_bias\":{\"1\":2},\"bad_words\":[[4],"
        "[5,6]]}",
        "{\"temperature\":1,\"logit_bias\":{\"9\":-1},\"bad_words\":[],\"ignore_eos\":false,"
        "\"logprobs\":true}",
    };
    struct turn_sampling one = fresh(), layered = fresh();
    for (int i = 0; i < 3; i++) {
        struct turn_sampling over;
        turn_sampling_init(&over);
        assert_int_equal(sampling_json_apply(&over, layers[i], VOCAB, NULL), 0);
        assert_int_equal(sampling_json_apply(&one, layers[i], VOCAB, NULL), 0);
        turn_sampling_overlay(&layered, &over);
    }
    char *a = sampling_json_text(&one, SAMPLING_EVERY_KEY, NULL);
    char *b = sampling_json_text(&layered, SAMPLING_EVERY_KEY, NULL);
    assert_string_equal(a, b);
    assert_int_equal(one.set, layered.set);
    assert_true(layered.params.has_seed && layered.params.temperature == 1);
    assert_int_equal(layered.params.stop.n_texts, 0);
    assert_int_equal(layered.params.bias[0].id, 9);
    free(a);
    free(b);
}

// Only the members of OpenAI's protocol are read. Where a member has two names the newer one wins. Errors name it.
static void reads_the_request_of_another_protocol(void **state) {
    static const char request[] = "{\"model\":\"m\",\"temperature\":0.5,\"top_k\":3,\"top_p_"
                                  "decay\":0.5,\"seed\":7,\"stop\":\"x\","
                                  "\"max_tokens\":5,\"max_completion_tokens\":9,\"logprobs\":true}";
    struct turn_sampling s = fresh();
    struct err err = {0};
    cJSON *o = cJSON_Parse(request);
    assert_int_equal(sampling_json_read_openai(&s, o, VOCAB, &err), 0);
    cJSON_Delete(o);
    char *given = sampling_json_text(&s, s.set, NULL);
    assert_string_equal(given, "{\"temperature\":0.5,\"top_k\":3,\"seed\":\"7\",\"max_tokens\":9,"
                               "\"stop\":[\"x\"]}");
    free(given);
    o = cJSON_Parse("{\"max_completion_tokens\":-1}");
    assert_int_equal(sampling_json_read_openai(&s, o, VOCAB, &err), E_INVAL);
    assert_non_null(strstr(err.text, "max_completion_tokens"));
    assert_int_equal(sampling_json_read(&s, o, VOCAB, &err), 0); // not a name of ours
    cJSON_Delete(o);
}

// Others' names of grammars.
static void reads_structured_outputs(void **state) {
    static const struct {
        const char *request, *given; // NULL: refused
    } rows[] = {
        {"{\"structured_outputs\":{\"regex\":\"a+\"}}", "{\"regex\":\"a+\"}"},
        {"{\"structured_outputs\":{\"json\":{\"type\":\"null\"},\"regex\":null}}",
         "{\"json_schema\":{\"type\":\"null\"}}"},
        {"{\"structured_outputs\":{\"json_object\":true}}",
         "{\"json_schema\":{\"type\":\"object\"}}"},
        {"{\"structured_outputs\":{\"choice\":[\"a\",\"b\"]}}", "{\"choice\":[\"a\",\"b\"]}"},
        {"{\"structured_outputs\":{\"grammar\":\"root ::= [ab]\"}}",
         "{\"grammar\":\"root ::= [ab]\"}"},
        {"{\"guided_json\":\"{\\\"type\\\":\\\"null\\\"}\"}",
         "{\"json_schema\":{\"type\":\"null\"}}"},
        {"{\"json_schema\":{\"type\":\"null\"}}", "{\"json_schema\":{\"type\":\"null\"}}"},
        {"{\"json_schema\":true,\"grammar\":\"root ::= [b]\"}", NULL},
        {"{\"structured_outputs\":null}", "{}"},
        {"{\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"b\"]}}", NULL},
        {"{\"structured_outputs\":{\"regex\":\"a\"},\"grammar\":\"root ::= [b]\"}", NULL},
        {"{\"structured_outputs\":{\"structural_tag\":\"x\"}}", NULL},
        {"{\"structured_outputs\":7}", NULL},
        {"{\"structured_outputs\":{\"regex\":7}}", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct turn_sampling s = fresh();
        struct err err = {0};
        cJSON *o = cJSON_Parse(rows[i].request);
        assert_non_null(o);
        int rc = sampling_json_read_openai(&s, o, VOCAB, &err);
        assert_int_equal(rc, rows[i].given ? 0 : E_INVAL);
        char *given = rc == 0 ? sampling_json_text(&s, s.set, NULL) : NULL;
        if (rc == 0) assert_string_equal(given, rows[i].given);
        free(given);
        turn_sampling_release(&s);
        cJSON_Delete(o);
    }
}

static void refuses_and_names_the_key(void **state) {
    static const struct {
        const char *json, *names;
    } bad[] = {
        {"[]", "sampling"},
        {"{", ""},
        {"{\"top_k\":1,\"top_k\":2}", "top_k"},
        {"{\"temperature\":-0.1}", "temperature"},
        {"{\"temperature\":101}", "temperature"},
        {"{\"temperature\":\"1\"}", "temperature"},
        {"{\"temperature\":1e999}", "too large"},
        {"{\"temperature\":true}", "temperature"},
        {"{\"top_k\":-1}", "top_k"},
        {"{\"top_k\":1.5}", "top_k"},
        {"{\"top_k\":3000000000}", "top_k"},
        {"{\"top_p\":0}", "top_p"},
        {"{\"top_p\":1e-60}", "top_p"},
        {"{\"top_p\":1.01}", "top_p"},
        {"{\"min_p\":-1}", "min_p"},
        {"{\"repetition_penalty\":0}", "repetition_penalty"},
        {"{\"presence_penalty\":101}", "presence_penalty"},
        {"{\"frequency_penalty\":-101}", "frequency_penalty"},
        {"{\"seed\":-1}", "seed"},
        {"{\"seed\":\"x\"}", "seed"},
        {"{\"seed\":\"18446744073709551616\"}", "seed"},
        {"{\"max_tokens\":-5}", "max_tokens"},
        {"{\"min_tokens\":[]}", "min_tokens"},
        {"{\"stop\":\"\"}", "stop"},
        {"{\"stop\":5}", "stop"},
        {"{\"stop\":[\"a\",5]}", "stop"},
        {"{\"stop\":[[]]}", "stop"},
        {"{\"stop\":[[1,\"a\"]]}", "stop"},
        {"{\"stop\":{\"a\":1}}", "stop"},
        {"{\"top_p_decay\":0}", "top_p_decay"},
        {"{\"top_p_decay\":1.1}", "top_p_decay"},
        {"{\"top_p_min\":0}", "top_p_min"},
        {"{\"top_p_reset_ids\":-2}", "top_p_reset_ids"},
        {"{\"start_id\":-2}", "start_id"},
        {"{\"logit_bias\":[1]}", "logit_bias"},
        {"{\"logit_bias\":{\"1000\":1}}", "logit_bias"},
        {"{\"logit_bias\":{\"-1\":1}}", "logit_bias"},
        {"{\"logit_bias\":{\" 1\":1}}", "logit_bias"},
        {"{\"logit_bias\":{\"99999999999\":1}}", "logit_bias"},
        {"{\"logit_bias\":{\"1\":\"x\"}}", "logit_bias"},
        {"{\"logit_bias\":{\"1\":101}}", "logit_bias"},
        {"{\"logit_bias\":{\"1\":1,\"01\":2}}", "logit_bias"},
        {"{\"bad_words\":[[]]}", "bad_words"},
        {"{\"bad_words\":[[1000]]}", "bad_words"},
        {"{\"bad_words\":[[0.5]]}", "bad_words"},
        {"{\"bad_words\":[[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,"
         "27,28,29,30,31,32,33]]}",
         "bad_words"},
        {"{\"bad_words\":[1]}", "bad_words"},
        {"{\"bad_words\":[\"\"]}", "bad_words"},
        {"{\"ignore_eos\":1}", "ignore_eos"},
        {"{\"logprobs\":\"yes\"}", "logprobs"},
        {"{\"top_logprobs\":21}", "top_logprobs"},
        {"{\"deadline_ms\":-1}", "deadline_ms"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct turn_sampling s = fresh(), before = fresh();
        struct err err = {0};
        int rc = sampling_json_apply(&s, bad[i].json, VOCAB, &err);
        if (rc != E_INVAL || !strstr(err.text, bad[i].names))
            fail_msg("%s: %d %s", bad[i].json, rc, err.text);
        assert_memory_equal(&s, &before, sizeof s);
    }
}

static void refuses_what_is_too_long_or_too_many(void **state) {
    struct turn_sampling s = fresh();
    char json[16384] = "{\"stop\":\"";
    memset(json + 9, 'x', SAMPLING_WORD_BYTES);
    strcpy(json + 9 + SAMPLING_WORD_BYTES, "\"}");
    assert_int_equal(sampling_json_apply(&s, json, VOCAB, NULL), E_INVAL);
    strcpy(json + 9 + SAMPLING_WORD_BYTES - 1, "\"}");
    assert_int_equal(sampling_json_apply(&s, json, VOCAB, NULL), 0);
    strcpy(json, "{\"stop\":[");
    for (int i = 0; i <= SAMPLING_MAX_WORDS; i++) strcat(json, i ? ",\"x\"" : "\"x\"");
    strcat(json, "]}");
    assert_int_equal(sampling_json_apply(&s, json, VOCAB, NULL), E_INVAL);
    strcpy(json, "{\"logit_bias\":{");
    for (int i = 0; i <= SAMPLING_MAX_BIAS; i++) {
        char item[32];
        snprintf(item, sizeof item, "%s\"%d\":1", i ? "," : "", i);
        strcat(json, item);
    }
    strcat(json, "}}");
    assert_int_equal(sampling_json_apply(&s, json, VOCAB, NULL), E_INVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_every_key),
        cmocka_unit_test(comes_back_as_it_was),
        cmocka_unit_test(writes_only_what_was_given),
        cmocka_unit_test(a_later_object_goes_over_an_earlier_one),
        cmocka_unit_test(layers_lie_over_each_other),
        cmocka_unit_test(reads_the_request_of_another_protocol),
        cmocka_unit_test(reads_structured_outputs),
        cmocka_unit_test(refuses_and_names_the_key),
        cmocka_unit_test(refuses_what_is_too_long_or_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
