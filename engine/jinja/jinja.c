// See jinja.h.
#include "engine/jinja/jinja.h"
#include "engine/jinja/eval.h"
#include "engine/jinja/parse.h"
#include <stdlib.h>

#define PARSE_BYTES ((size_t)256 << 20) // a megabyte of text in the worst shape needs a third
#define RUN_BYTES ((size_t)64 << 20)    // and BYTES_FOR_EACH of input: texts are joined again
#define BYTES_FOR_EACH 32               // and again, and have an origin for each byte
#define OUTPUT_BYTES ((size_t)64 << 20)
// A template that loops must end within 0.3 s. Published templates take some hundred steps for a
// message; long texts add steps by their length, and each message of a long conversation counts as
// 256 bytes (chat_template.c).
#define STEPS 100000 // and one for each byte of input

struct jinja_template {
    struct jinja_arena arena;
    struct jinja_node *body;
};

int jinja_open(struct jinja_template **out, const char *text, size_t len, struct err *err) {
    struct jinja_template *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return err_set(err, E_NOMEM, "no memory for a chat template");
    jinja_arena_init(&t->arena, PARSE_BYTES);
    int rc = jinja_parse(&t->body, &t->arena, (struct jinja_string){.s = text, .len = len}, err);
    if (rc < 0) {
        jinja_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

void jinja_close(struct jinja_template *t) {
    if (!t) return;
    jinja_arena_release(&t->arena);
    free(t);
}

static int no_memory(struct jinja_run *r, int rc) {
    if (rc >= 0 || !r->arena.error || r->err->code != 0) return rc;
    if (r->arena.error == E_LIMIT)
        return jinja_fail(r, E_LIMIT, "the chat template takes more than %zu MiB",
                          r->arena.max >> 20);
    return jinja_fail(r, E_NOMEM, "no memory to write the conversation");
}

int jinja_begin(struct jinja_run *r, size_t n_input, const struct tm *now, struct err *err) {
    *r = (struct jinja_run){.output_max = OUTPUT_BYTES, .now = *now};
    r->steps_left = STEPS + (int64_t)(n_input < INT32_MAX ? n_input : INT32_MAX);
    r->err = err ? err : &r->own_err;
    r->err->code = 0;
    r->scope = &r->root;
    jinja_arena_init(&r->arena, n_input < SIZE_MAX / BYTES_FOR_EACH - RUN_BYTES
                                    ? RUN_BYTES + n_input * BYTES_FOR_EACH
                                    : SIZE_MAX);
    for (const struct jinja_builtin *b = jinja_functions; b->name; b++) {
        struct jinja_value v = {.kind = JINJA_FUNCTION, .call.builtin = b};
        TRY(jinja_set(r, b->name, v));
    }
    return 0;
}

void jinja_end(struct jinja_run *r) {
    jinja_arena_release(&r->arena);
}

int jinja_set(struct jinja_run *r, const char *name, struct jinja_value v) {
    return no_memory(r, jinja_assign(r, &r->root, jinja_z(name).s, v));
}

int jinja_render(struct jinja_run *r, const struct jinja_template *t, struct jinja_string *out) {
    struct jinja_text text;
    jinja_text_init(&text, &r->arena);
    r->out = &text;
    int rc = jinja_scope_enter(r, &r->root);
    if (rc == 0) rc = jinja_exec(r, t->body);
    if (rc == 0) rc = jinja_text_take(&text, out);
    return no_memory(r, rc);
}
