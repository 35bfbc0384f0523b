// Chat templates: each template that parses runs over a conversation whose texts are marked. The limit of
// steps is low, so that work which takes time but no steps becomes a timeout. The limit of memory is that of
// a short conversation.
#include "base/utf8.h"
#include "engine/jinja/jinja.h"
#include "tests/fuzz/fuzz.h"

#define STEPS 100000
// A character that no template here spells: where it is printed, a person has typed it.
#define TYPED "\xef\xa3\xbf"

static struct jinja_value text(struct jinja_run *r, const char *s, uint8_t origin) {
    struct jinja_value v = jinja_z(s);
    uint8_t *marks = jinja_arena_get(&r->arena, v.s.len);
    FUZZ_CHECK(marks);
    memset(marks, origin, v.s.len);
    v.s.origin = marks;
    return v;
}

static void put(struct jinja_run *r, struct jinja_value *list, const char *role,
                const char *content) {
    struct jinja_value m;
    FUZZ_CHECK(jinja_dict_new(r, &m) == 0);
    FUZZ_CHECK(jinja_dict_setz(r, m.dict, "role", jinja_z(role)) == 0);
    FUZZ_CHECK(jinja_dict_setz(r, m.dict, "content", text(r, content, 7)) == 0);
    FUZZ_CHECK(jinja_list_push(r, list->list, m) == 0);
}

static void set_names(struct jinja_run *r) {
    struct jinja_value list;
    FUZZ_CHECK(jinja_list_new(r, JINJA_LIST, &list) == 0);
    put(r, &list, "system", "Be " TYPED "kind.");
    put(r, &list, "user", "  " TYPED "Hi, {{ x }} <|im_end|> 12.5 \xc3\x9f\n");
    put(r, &list, "assistant", "<think>no" TYPED "</think>\n\nYes " TYPED);
    put(r, &list, "user", TYPED);
    FUZZ_CHECK(jinja_set(r, "messages", list) == 0);
    FUZZ_CHECK(jinja_set(r, "add_generation_prompt", jinja_bool(true)) == 0);
    FUZZ_CHECK(jinja_set(r, "tools", jinja_none()) == 0);
    FUZZ_CHECK(jinja_set(r, "bos_token", jinja_z("<s>")) == 0);
    FUZZ_CHECK(jinja_set(r, "eos_token", jinja_z("</s>")) == 0);
}

// Whatever a template did to a text, what it prints of it is still known as typed.
static void check_origins(struct jinja_string s) {
    for (size_t at = 0; (at = jinja_string_find(s, JINJA_LITERAL(TYPED), at)) != SIZE_MAX; at++)
        for (size_t i = 0; i < 3; i++) FUZZ_CHECK(jinja_string_origin(s, at + i) == 7);
}

static void run(const struct jinja_template *t, bool spells_typed) {
    struct jinja_run r;
    struct jinja_string s;
    struct err err = {0};
    struct tm now = {.tm_year = 126, .tm_mday = 15, .tm_hour = 9, .tm_min = 30, .tm_wday = 4};
    FUZZ_CHECK(jinja_begin(&r, 4096, &now, &err) == 0);
    r.steps_left = STEPS;
    set_names(&r);
    int rc = jinja_render(&r, t, &s);
    fuzz_check_err(rc, &err);
    FUZZ_CHECK(rc == 0 || rc == E_INVAL || rc == E_LIMIT || rc == E_UNSUPPORTED);
    if (rc == 0) {
        FUZZ_CHECK(s.len <= r.output_max && utf8_valid(s.s, s.len));
        if (!spells_typed) check_origins(s);
    }
    jinja_end(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct jinja_template *t = NULL;
    struct err err = {0};
    const char *s = (const char *)data;
    if (!utf8_valid(s, size)) return 0; // the caller's duty
    int rc = jinja_open(&t, s, size, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) {
        FUZZ_CHECK(rc == E_FORMAT || rc == E_UNSUPPORTED || rc == E_LIMIT);
        FUZZ_CHECK(strncmp(err.text, "line ", 5) == 0);
        return 0;
    }
    // Escapes could spell it.
    bool spells_typed = memmem(s, size, TYPED, 3) || memmem(s, size, "\\", 1);
    run(t, spells_typed);
    jinja_close(t);
    return 0;
}
