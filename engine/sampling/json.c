// Sampling parameters from and to JSON, row by row. See json.h.
#include "engine/sampling/json.h"
#include "base/json.h"
#include "engine/sampling/rows.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- reading ---

static int read_float(const cJSON *o, const struct sampling_row *r, float *out, struct err *err) {
    double v = 0;
    int rc = json_get_double(o, r->name, r->min, r->max, &v, err);
    if (rc != JSON_PRESENT) return rc;
    if ((float)v == 0 && v != 0)
        return err_key(err, E_INVAL, r->name, "'%s' is too small for a float", r->name);
    if (r->above_min && v <= r->min)
        return err_key(err, E_INVAL, r->name, "'%s' must be above %g", r->name, r->min);
    *out = (float)v;
    return rc;
}

static int read_int(const cJSON *o, const struct sampling_row *r, int32_t *out, struct err *err) {
    int64_t v = 0;
    int rc = json_get_int(o, r->name, (int64_t)r->min, (int64_t)r->max, &v, err);
    if (rc == JSON_PRESENT) *out = (int32_t)v;
    return rc;
}

// Digits only: strtol alone would take " +7" and "-0".
static int parse_token_id(const char *s, int32_t n_vocab, int32_t *out) {
    size_t len = strlen(s);
    if (len == 0 || len > 9 || strspn(s, "0123456789") != len) return E_INVAL;
    long v = strtol(s, NULL, 10);
    if (v >= n_vocab) return E_INVAL;
    *out = (int32_t)v;
    return 0;
}

static int read_biases(const cJSON *value, const struct sampling_row *r, struct sampling_params *p,
                       int32_t n_vocab, struct err *err) {
    if (!cJSON_IsObject(value))
        return err_key(err, E_INVAL, "logit_bias",
                       "logit_bias must be an object of token id: bias");
    p->n_bias = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, value) {
        int32_t id = 0;
        if (p->n_bias == SAMPLING_MAX_BIAS)
            return err_key(err, E_INVAL, "logit_bias", "logit_bias has more than %d entries",
                           SAMPLING_MAX_BIAS);
        if (parse_token_id(item->string, n_vocab, &id) < 0)
            return err_key(err, E_INVAL, "logit_bias",
                           "a key of logit_bias is not a token id below %d", n_vocab);
        if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble) || item->valuedouble < r->min ||
            item->valuedouble > r->max)
            return err_key(err, E_INVAL, "logit_bias",
                           "logit_bias of token %d must be a number from %g to %g", id, r->min,
                           r->max);
        for (int i = 0; i < p->n_bias; i++)
            if (p->bias[i].id == id)
                return err_key(err, E_INVAL, "logit_bias", "logit_bias names token %d twice", id);
        p->bias[p->n_bias++] = (struct logit_bias){id, (float)item->valuedouble};
    }
    return JSON_PRESENT;
}

static int read_list(const cJSON *list, const struct sampling_row *r, struct sampling_words *w,
                     int32_t n_vocab, struct err *err) {
    int32_t ids[SAMPLING_WORD_TOKENS + 1]; // one too many is refused below
    size_t n = 0;
    const cJSON *id;
    cJSON_ArrayForEach(id, list) {
        double v = cJSON_IsNumber(id) ? id->valuedouble : -1;
        if (!(v >= 0 && v < n_vocab) || v != floor(v))
            return err_key(err, E_INVAL, r->name,
                           "%s has a list with a value that is no token id below %d", r->name,
                           n_vocab);
        if (n <= SAMPLING_WORD_TOKENS) ids[n++] = (int32_t)v;
    }
    return sampling_words_add_ids(w, r->name, ids, n, err);
}

static int read_entry(const cJSON *item, const struct sampling_row *r, struct sampling_words *w,
                      int32_t n_vocab, struct err *err) {
    if (cJSON_IsArray(item)) return read_list(item, r, w, n_vocab, err);
    if (cJSON_IsString(item))
        return sampling_words_add_text(w, r->name, item->valuestring, strlen(item->valuestring),
                                       err);
    return err_key(err, E_INVAL, r->name,
                   "%s must be a string, or a list of strings and lists of token ids", r->name);
}

static int read_words(const cJSON *value, const struct sampling_row *r, struct sampling_words *w,
                      int32_t n_vocab, struct err *err) {
    memset(w, 0, sizeof *w);
    if (!cJSON_IsArray(value)) {
        TRY(read_entry(value, r, w, n_vocab, err));
        return JSON_PRESENT;
    }
    const cJSON *item;
    cJSON_ArrayForEach(item, value) TRY(read_entry(item, r, w, n_vocab, err));
    return JSON_PRESENT;
}

static int read_ms(const cJSON *o, const struct sampling_row *r, int64_t *us, struct err *err) {
    int64_t ms = 0;
    int rc = json_get_int(o, r->name, (int64_t)r->min, (int64_t)r->max, &ms, err);
    if (rc == JSON_PRESENT) *us = ms * 1000;
    return rc;
}

static int read_seed(const cJSON *o, const struct sampling_row *r, struct sampling_params *p,
                     struct err *err) {
    int rc = json_get_u64(o, r->name, &p->seed, err);
    if (rc == JSON_PRESENT) p->has_seed = true;
    return rc;
}

// The JSON that a grammar of this kind is made of. What is in it is checked when it is compiled.
static bool has_form(enum grammar_kind kind, const cJSON *value) {
    if (kind == GRAMMAR_CHOICE) return cJSON_IsArray(value);
    return kind == GRAMMAR_JSON_SCHEMA && (cJSON_IsObject(value) || cJSON_IsBool(value));
}

// A text, or JSON itself where the kind is made of it. An empty text: no grammar.
static int read_grammar(const cJSON *value, const struct sampling_row *r, struct sampling_params *p,
                        struct err *err) {
    enum grammar_kind kind = sampling_row_kind(r);
    bool is_json = kind == GRAMMAR_JSON_SCHEMA || kind == GRAMMAR_CHOICE;
    const struct grammar_text *next = NULL;
    int rc = 0;
    if (cJSON_IsString(value) && (!is_json || !*value->valuestring)) {
        const char *text = value->valuestring;
        if (*text) rc = grammar_text_new(&next, kind, text, strlen(text), err);
    } else if (cJSON_IsString(value)) { // the text of a JSON value
        struct err why = {0};
        const char *text = value->valuestring;
        cJSON *inner = json_parse(text, strlen(text), &json_limits_message, &why);
        bool nested = inner && cJSON_IsString(inner);
        if (!inner || nested)
            rc = err_key(err, E_INVAL, r->name, "'%s' is not JSON: %s", r->name,
                         inner ? "it is a string in a string" : why.text);
        else
            rc = read_grammar(inner, r, p, err);
        cJSON_Delete(inner);
        return rc;
    } else if (has_form(kind, value)) {
        char *text = json_print(value);
        rc = text ? grammar_text_new(&next, kind, text, strlen(text), err)
                  : err_set(err, E_NOMEM, "no memory for %s", r->name);
        free(text);
    } else {
        rc = err_key(err, E_INVAL, r->name, "'%s' must be %s", r->name,
                     kind == GRAMMAR_CHOICE ? "a list of strings"
                     : is_json              ? "a schema: an object, true or false"
                                            : "a string");
    }
    if (rc < 0) return rc;
    if (next && p->grammar) { // of another key of the same object
        grammar_text_free(next);
        return err_set(err, E_INVAL, "json_schema, grammar, regex and choice exclude each other");
    }
    if (next) p->grammar = next;
    return JSON_PRESENT;
}

// Whether the object says anything of a grammar: then that takes the place of the one there was.
static bool has_grammar(const cJSON *o, unsigned place) {
    for (int i = 0; i < n_sampling_rows; i++) {
        const struct sampling_row *r = &sampling_rows[i];
        if (r->type != SAMPLING_GRAMMAR || (place && !(r->places & place))) continue;
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, r->name);
        const cJSON *alias =
            place && r->alias ? cJSON_GetObjectItemCaseSensitive(o, r->alias) : NULL;
        if ((v && !cJSON_IsNull(v)) || (alias && !cJSON_IsNull(alias))) return true;
    }
    return false;
}

// name: the row's, or its alias.
static int read_row(const cJSON *o, const struct sampling_row *row, const char *name,
                    struct sampling_params *p, int32_t n_vocab, struct err *err) {
    struct sampling_row named = *row, *r = &named;
    void *at = (char *)p + r->offset;
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(o, name);
    r->name = name;
    if (!value || cJSON_IsNull(value)) return JSON_ABSENT;
    switch (r->type) {
    case SAMPLING_FLOAT:
        return read_float(o, r, at, err);
    case SAMPLING_INT:
        return read_int(o, r, at, err);
    case SAMPLING_BOOL:
        return json_get_bool(o, r->name, at, err);
    case SAMPLING_SEED:
        return read_seed(o, r, p, err);
    case SAMPLING_MS:
        return read_ms(o, r, at, err);
    case SAMPLING_BIASES:
        return read_biases(value, r, p, n_vocab, err);
    case SAMPLING_WORDS:
        return read_words(value, r, at, n_vocab, err);
    case SAMPLING_GRAMMAR:
        return read_grammar(value, row, p, err);
    }
    return JSON_ABSENT;
}

static int put_rows(struct turn_sampling *next, const cJSON *object, unsigned place,
                    int32_t n_vocab, struct err *err) {
    if (has_grammar(object, place)) turn_sampling_release(next);
    for (int i = 0; i < n_sampling_rows; i++) {
        const struct sampling_row *row = &sampling_rows[i];
        if (place && !(row->places & place)) continue;
        int found = read_row(object, row, row->name, &next->params, n_vocab, err);
        if (found >= 0 && place && row->alias) {
            int again = read_row(object, row, row->alias, &next->params, n_vocab, err);
            if (again != JSON_ABSENT) found = again;
        }
        if (found < 0) return found;
        if (found == JSON_PRESENT) next->set |= (uint64_t)1 << i;
    }
    return 0;
}

// Reads into a copy, which holds what it will hold whatever becomes of it.
static int read_rows(struct turn_sampling *s, const cJSON *object, unsigned place, int32_t n_vocab,
                     struct err *err) {
    if (!cJSON_IsObject(object)) return err_set(err, E_INVAL, "sampling must be an object");
    struct turn_sampling next = *s;
    grammar_text_hold(next.params.grammar);
    int rc = put_rows(&next, object, place, n_vocab, err);
    struct turn_sampling *old = rc < 0 ? &next : s;
    turn_sampling_release(old);
    if (rc == 0) *s = next;
    return rc;
}

int sampling_json_read(struct turn_sampling *s, const cJSON *object, int32_t n_vocab,
                       struct err *err) {
    return read_rows(s, object, 0, n_vocab, err);
}

// Others' names of grammars, within vLLM's structured_outputs or (outer) beside it, and ours.
static const struct {
    const char *theirs, *ours;
    bool outer;
} structured[] = {
    {"json", "json_schema", false},
    {"json_object", "json_schema", false},
    {"regex", "regex", false},
    {"choice", "choice", false},
    {"grammar", "grammar", false},
    {"structural_tag", NULL, false},
    {"guided_json", "json_schema", true},
    {"json_schema", "json_schema", true}, // llama.cpp's and parley.v1's
    {"guided_grammar", "grammar", true},
};

static int take_structured(cJSON *own, const cJSON *from, bool outer, struct err *err) {
    for (size_t i = 0; i < sizeof structured / sizeof *structured; i++) {
        const char *name = structured[i].theirs;
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(from, name);
        bool none = !v || cJSON_IsNull(v) || cJSON_IsFalse(v) || structured[i].outer != outer;
        if (none) continue;
        if (!structured[i].ours)
            return err_set(err, E_INVAL, "structured_outputs.%s is not served here", name);
        if (own->child)
            return err_set(err, E_INVAL,
                           "json_schema, grammar, regex and choice exclude each other");
        cJSON *copy =
            cJSON_IsTrue(v) ? cJSON_Parse("{\"type\":\"object\"}") : cJSON_Duplicate(v, true);
        if (copy && cJSON_AddItemToObject(own, structured[i].ours, copy)) continue;
        cJSON_Delete(copy);
        return err_set(err, E_NOMEM, "no memory for %s", name);
    }
    return 0;
}

static int read_structured(struct turn_sampling *s, const cJSON *request, int32_t n_vocab,
                           struct err *err) {
    const cJSON *outputs = cJSON_GetObjectItemCaseSensitive(request, "structured_outputs");
    bool given = outputs && !cJSON_IsNull(outputs);
    if (given && !cJSON_IsObject(outputs))
        return err_set(err, E_INVAL, "structured_outputs must be an object");
    cJSON *own = cJSON_CreateObject();
    if (!own) return err_set(err, E_NOMEM, "no memory for a grammar");
    int rc = take_structured(own, outputs, false, err);
    if (rc == 0) rc = take_structured(own, request, true, err);
    if (rc == 0 && own->child && has_grammar(request, SAMPLING_OPENAI))
        rc = err_set(err, E_INVAL, "json_schema, grammar, regex and choice exclude each other");
    if (rc == 0 && own->child) rc = sampling_json_read(s, own, n_vocab, err);
    cJSON_Delete(own);
    return rc;
}

int sampling_json_read_openai(struct turn_sampling *s, const cJSON *request, int32_t n_vocab,
                              struct err *err) {
    int rc = read_rows(s, request, SAMPLING_OPENAI, n_vocab, err);
    return rc < 0 ? rc : read_structured(s, request, n_vocab, err);
}

static bool is_refused(const cJSON *request, const struct sampling_row *row, const char *name,
                       int32_t n_vocab) {
    struct turn_sampling alone;
    struct err why;
    turn_sampling_init(&alone);
    bool refused = name && read_row(request, row, name, &alone.params, n_vocab, &why) < 0;
    turn_sampling_release(&alone);
    return refused;
}

const char *sampling_json_refused(const cJSON *request, int32_t n_vocab) {
    for (int i = 0; i < n_sampling_rows; i++) {
        const struct sampling_row *row = &sampling_rows[i];
        if (!(row->places & SAMPLING_OPENAI)) continue;
        if (is_refused(request, row, row->name, n_vocab)) return row->name;
        if (is_refused(request, row, row->alias, n_vocab)) return row->alias;
    }
    return NULL;
}

int sampling_json_apply(struct turn_sampling *s, const char *json, int32_t n_vocab,
                        struct err *err) {
    if (!json) return 0;
    cJSON *o = json_parse(json, strlen(json), &json_limits_message, err);
    if (!o) return E_INVAL;
    int rc = sampling_json_read(s, o, n_vocab, err);
    cJSON_Delete(o);
    return rc;
}

// --- writing ---

// All rows but a grammar, and a grammar with every character escaped.
#define SAMPLING_TEXT_MAX (65536 + 6 * GRAMMAR_TEXT_MAX)

static void write_biases(struct json_writer *w, const char *name, const struct sampling_params *p) {
    json_open(w, name, '{');
    for (int i = 0; i < p->n_bias; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", p->bias[i].id);
        json_put_float(w, id, p->bias[i].bias);
    }
    json_close(w, '}');
}

static void write_words(struct json_writer *w, const char *name,
                        const struct sampling_words *words) {
    json_open(w, name, '[');
    for (int32_t i = 0; i < words->n_texts; i++)
        json_put_string(w, NULL, sampling_word_text(words, i));
    for (int32_t i = 0; i < words->n_lists; i++) {
        int32_t n;
        const int32_t *ids = sampling_word_ids(words, i, &n);
        json_put_ids(w, NULL, ids, (size_t)n);
    }
    json_close(w, ']');
}

// Of the rows that share the field only the grammar's own; where a layer takes a grammar away, every
// given one.
static void write_grammar(struct json_writer *w, const struct sampling_row *r,
                          const struct sampling_params *p, bool given) {
    enum grammar_kind kind = sampling_row_kind(r);
    if (!p->grammar && given) json_put_string(w, r->name, "");
    if (!p->grammar || grammar_text_kind(p->grammar) != kind) return;
    size_t len;
    const char *text = grammar_text_string(p->grammar, &len);
    if (kind == GRAMMAR_JSON_SCHEMA || kind == GRAMMAR_CHOICE)
        json_put_raw(w, r->name, text, len); // JSON: read_grammar wrote it
    else
        json_put_string(w, r->name, text);
}

static void write_row(struct json_writer *w, const struct sampling_row *r,
                      const struct sampling_params *p, bool given) {
    const void *at = (const char *)p + r->offset;
    switch (r->type) {
    case SAMPLING_FLOAT:
        json_put_float(w, r->name, *(const float *)at);
        break;
    case SAMPLING_INT:
        json_put_int(w, r->name, *(const int32_t *)at);
        break;
    case SAMPLING_BOOL:
        json_put_bool(w, r->name, *(const bool *)at);
        break;
    case SAMPLING_SEED:
        if (p->has_seed) json_put_u64_string(w, r->name, p->seed);
        break;
    case SAMPLING_MS:
        json_put_int(w, r->name, *(const int64_t *)at / 1000);
        break;
    case SAMPLING_BIASES:
        write_biases(w, r->name, p);
        break;
    case SAMPLING_WORDS:
        write_words(w, r->name, at);
        break;
    case SAMPLING_GRAMMAR:
        write_grammar(w, r, p, given);
        break;
    }
}

void sampling_json_put(struct json_writer *w, const char *key, const struct turn_sampling *s,
                       uint64_t keys) {
    json_open(w, key, '{');
    for (int i = 0; i < n_sampling_rows; i++)
        if (keys >> i & 1) write_row(w, &sampling_rows[i], &s->params, s->set >> i & 1);
    json_close(w, '}');
}

int sampling_json_write(struct buf *out, const struct turn_sampling *s, uint64_t keys) {
    struct json_writer w;
    json_writer_init(&w, out);
    sampling_json_put(&w, NULL, s, keys);
    return out->error;
}

char *sampling_json_text(const struct turn_sampling *s, uint64_t keys, struct err *err) {
    struct buf out;
    buf_init(&out, SAMPLING_TEXT_MAX);
    sampling_json_write(&out, s, keys);
    char *text = buf_take(&out, NULL);
    if (!text) err_set(err, E_NOMEM, "no memory for sampling parameters");
    buf_release(&out);
    return text;
}

// --- the rows themselves ---

static const char *type_name(enum sampling_type type) {
    static const char *const names[] = {
        [SAMPLING_FLOAT] = "number", [SAMPLING_INT] = "integer",
        [SAMPLING_BOOL] = "boolean", [SAMPLING_SEED] = "seed",
        [SAMPLING_MS] = "integer",   [SAMPLING_BIASES] = "token_map",
        [SAMPLING_WORDS] = "words",  [SAMPLING_GRAMMAR] = "grammar",
    };
    return names[type];
}

// Integers exactly: a double is written with nine digits.
static void put_bound(struct json_writer *w, const char *key, double v) {
    if (trunc(v) == v)
        json_put_int(w, key, (int64_t)v);
    else
        json_put_double(w, key, v);
}

static void put_range(struct json_writer *w, const struct sampling_row *r) {
    if (r->type == SAMPLING_BOOL || r->type == SAMPLING_SEED || r->type == SAMPLING_GRAMMAR) return;
    put_bound(w, "min", r->min);
    put_bound(w, "max", r->max);
    if (r->above_min) json_put_bool(w, "above_min", true);
    json_put_double(w, "step", r->step);
}

void sampling_json_put_rows(struct json_writer *w, const char *key) {
    json_open(w, key, '[');
    for (int i = 0; i < n_sampling_rows; i++) {
        const struct sampling_row *r = &sampling_rows[i];
        json_open(w, NULL, '{');
        json_put_string(w, "name", r->name);
        json_put_string(w, "type", type_name(r->type));
        put_range(w, r);
        json_put_string(w, "label", r->label);
        if (r->zero) json_put_string(w, "zero", r->zero);
        json_put_string(w, "help", r->help);
        json_put_bool(w, "form", r->places & SAMPLING_FORM);
        json_close(w, '}');
    }
    json_close(w, ']');
}
