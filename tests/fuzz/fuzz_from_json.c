// The filter from_json over any text that a client may send: it ends within its steps and memory. It reads
// the same value again from what tojson writes of it, and every character of the text keeps its origin.
#include "base/utf8.h"
#include "engine/jinja/jinja.h"
#include "tests/fuzz/fuzz.h"

#define STEPS 100000

// *out is valid until jinja_end.
static int run(struct jinja_run *r, struct jinja_template *t, const char *s, size_t len,
               struct jinja_string *out) {
    struct err err = {0};
    struct tm now = {.tm_year = 126, .tm_mday = 1};
    struct jinja_value v = {.kind = JINJA_STRING, .s = {.s = s, .len = len}};
    FUZZ_CHECK(jinja_begin(r, len, &now, &err) == 0);
    r->steps_left = STEPS;
    uint8_t *marks = jinja_arena_get(&r->arena, len + 1);
    FUZZ_CHECK(marks);
    memset(marks, 7, len);
    v.s.origin = marks;
    FUZZ_CHECK(jinja_set(r, "text", v) == 0);
    int rc = jinja_render(r, t, out);
    fuzz_check_err(rc, &err);
    FUZZ_CHECK(rc == 0 || rc == E_INVAL || rc == E_LIMIT || rc == E_UNSUPPORTED);
    FUZZ_CHECK(rc < 0 || utf8_valid(out->s, out->len));
    return rc;
}

// Letters that JSON itself does not write are the client's.
static void check_origins(struct jinja_string s) {
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.s[i] >= 0x80) FUZZ_CHECK(jinja_string_origin(s, i) == 7);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] = "{{ text | from_json | tojson }}";
    static struct jinja_template *t;
    struct jinja_run first, again;
    struct jinja_string a, b;
    struct err err = {0};
    if (!utf8_valid((const char *)data, size)) return 0; // the caller's duty
    if (!t) FUZZ_CHECK(jinja_open(&t, text, sizeof text - 1, &err) == 0);
    int rc = run(&first, t, (const char *)data, size, &a);
    if (rc == 0) {
        check_origins(a);
        rc = run(&again, t, a.s, a.len, &b);
        FUZZ_CHECK(rc == E_LIMIT || (rc == 0 && jinja_string_equal(a, b)));
        jinja_end(&again);
    }
    jinja_end(&first);
    return 0;
}
