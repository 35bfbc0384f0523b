// Names and their values in nested scopes. See run.h.
#include "engine/jinja/run.h"

int jinja_lookup(struct jinja_run *r, struct jinja_string name, struct jinja_value *out) {
    size_t n = 0;
    for (const struct jinja_scope *s = r->scope; s; s = s->parent, n++)
        for (const struct jinja_var *v = s->vars; v; v = v->next, n++) {
            if (!jinja_string_equal(v->name, name)) continue;
            *out = v->value;
            return jinja_spend(r, n / 4);
        }
    TRY(jinja_spend(r, n / 4));
    return jinja_undefined(r, out, "'%.*s' is undefined", JINJA_QUOTED(name));
}

static struct jinja_var *new_var(struct jinja_run *r) {
    struct jinja_var *var = r->spare_vars;
    if (!var) return jinja_arena_bytes(&r->arena, sizeof *var);
    r->spare_vars = var->next;
    return var;
}

int jinja_assign(struct jinja_run *r, struct jinja_scope *scope, struct jinja_string name,
                 struct jinja_value v) {
    size_t n = 0;
    struct jinja_var *var = scope->vars;
    for (; var && !jinja_string_equal(var->name, name); var = var->next) n++;
    TRY(jinja_spend(r, n / 4));
    if (!var) {
        if (!(var = new_var(r))) return r->arena.error;
        var->name = name;
        var->next = scope->vars;
        scope->vars = var;
    }
    var->value = v;
    return 0;
}

void jinja_scope_empty(struct jinja_run *r, struct jinja_scope *s) {
    while (s->vars) {
        struct jinja_var *var = s->vars;
        s->vars = var->next;
        var->next = r->spare_vars;
        r->spare_vars = var;
    }
}

int jinja_scope_enter(struct jinja_run *r, struct jinja_scope *parent) {
    struct jinja_scope *s = jinja_arena_get(&r->arena, sizeof *s);
    if (!s) return r->arena.error;
    s->parent = parent;
    r->scope = s;
    return 0;
}
