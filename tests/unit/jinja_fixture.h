// Renders small templates with one set of values and compares the results with those of Jinja 3.1
// in the environment of Hugging Face transformers.
#pragma once
#include "base/json.h"
#include "engine/jinja/jinja.h"
#include "tests/cmocka.h"
#include <string.h>

struct jinja_sample {
    const char *text;
    const char *want; // what is printed; if code is set, the end of the error's sentence
    int code;
};

static const char jinja_context[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi "
    "there\"},{\"role\":\"assistant\",\"content\":"
    "\"  Yes\\n\"},{\"role\":\"user\",\"content\":\"naïve 你好 ß 👍\"}],\"d\":{\"a\":1,\"b\":[1,2,{"
    "\"c\":null}],\"items\":\"x\",\"k y\":1.5},\"l\":[3,1,2],\"s\":\"Hello "
    "World\",\"e\":\"\",\"n\":"
    "null,\"f\":0.1,\"i\":-7,\"t\":true,\"big\":1e20,\"words\":[\"b\",\"A\",\"c\",\"a\"],"
    "\"people\":"
    "[{\"n\":\"x\",\"a\":{\"b\":2}},{\"n\":\"y\",\"a\":{\"b\":1}},{\"n\":\"z\",\"a\":{\"b\":2}}],"
    "\"bos_token\":\"<s>\"}";

static inline struct jinja_value jinja_of_json(struct jinja_run *r, const cJSON *j) {
    struct jinja_value v = jinja_none();
    const cJSON *item;
    double number = j->valuedouble;
    if (cJSON_IsString(j)) return jinja_z(j->valuestring);
    if (cJSON_IsBool(j)) return jinja_bool(cJSON_IsTrue(j));
    if (cJSON_IsNumber(j))
        return number < 1e15 && number == (double)(int64_t)number ? jinja_int((int64_t)number)
                                                                  : jinja_float(number);
    if (cJSON_IsArray(j)) {
        assert_int_equal(jinja_list_new(r, JINJA_LIST, &v), 0);
        cJSON_ArrayForEach(item, j)
            assert_int_equal(jinja_list_push(r, v.list, jinja_of_json(r, item)), 0);
    }
    if (cJSON_IsObject(j)) {
        assert_int_equal(jinja_dict_new(r, &v), 0);
        cJSON_ArrayForEach(item, j)
            assert_int_equal(jinja_dict_setz(r, v.dict, item->string, jinja_of_json(r, item)), 0);
    }
    return v;
}

static int64_t jinja_more_steps; // more than a template has by itself

// 0 or the code of opening or rendering; *out is what is printed, or the sentence.
static inline int jinja_run_text(const char *text, struct buf *out) {
    struct err err = {0};
    struct jinja_template *t;
    struct jinja_run r;
    struct jinja_string s;
    struct tm now = {.tm_year = 126,
                     .tm_mday = 15,
                     .tm_hour = 9,
                     .tm_min = 30,
                     .tm_wday = 4,
                     .tm_yday = 14}; // Thursday, 15 January 2026
    buf_init(out, 1 << 27);
    int rc = jinja_open(&t, text, strlen(text), &err);
    if (rc == 0) {
        cJSON *root = json_parse(jinja_context, strlen(jinja_context), &json_limits_file, &err);
        assert_non_null(root);
        assert_int_equal(jinja_begin(&r, sizeof jinja_context, &now, &err), 0);
        r.steps_left += jinja_more_steps;
        const cJSON *item;
        cJSON_ArrayForEach(item, root)
            assert_int_equal(jinja_set(&r, item->string, jinja_of_json(&r, item)), 0);
        rc = jinja_render(&r, t, &s);
        if (rc == 0) buf_add(out, s.s, s.len);
        jinja_end(&r);
        jinja_close(t);
        cJSON_Delete(root);
    }
    if (rc != 0) buf_addz(out, err.text);
    return rc;
}

static inline void jinja_check(const struct jinja_sample *c, size_t n) {
    for (; n-- > 0; c++) {
        struct buf got;
        int rc = jinja_run_text(c->text, &got);
        size_t want_len = strlen(c->want), skip = c->code && got.len > want_len;
        if (skip) skip = got.len - want_len;
        if (rc != c->code || strcmp(buf_z(&got) + skip, c->want) != 0)
            fail_msg("%s\n   gives %d '%s',\n   not %d '%s'", c->text, rc, buf_z(&got), c->code,
                     c->want);
        buf_release(&got);
    }
}
#define JINJA_CHECK(cases) jinja_check(cases, sizeof(cases) / sizeof *(cases))
