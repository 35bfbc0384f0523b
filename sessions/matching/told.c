// See told.h.
#include "sessions/matching/told.h"
#include "base/json_form.h"
#include "engine/engine.h"
#include "sessions/matching/told_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANONICAL_BYTES ((size_t)128 << 20)
#define SHOWN_BYTES ((size_t)64 << 20)
#define SHORT_BYTES 512 // a message that is hashed without an allocation

// --- chains ---

void told_digits(struct hash128 chain, char out[TOLD_DIGITS + 1]) {
    // One for each message of a conversation: printf takes ten times as long.
    for (int i = TOLD_DIGITS / 2; i-- > 0; chain.hi >>= 4, chain.lo >>= 4) {
        out[i] = "0123456789abcdef"[chain.hi & 15];
        out[TOLD_DIGITS / 2 + i] = "0123456789abcdef"[chain.lo & 15];
    }
    out[TOLD_DIGITS] = '\0';
}

static struct hash128 hash_of(const char *text, size_t len) {
    static const uint64_t key[2] = {0x73686f776e, 0x74657874};
    return siphash128(key, text, len);
}

static const char *string_of(const cJSON *object, const char *key) {
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return s ? s : "";
}

// Without the white space at both ends; not terminated.
static const char *trimmed(const char *s, size_t *len) {
    static const char white[] = " \t\r\n\v\f";
    s += strspn(s, white);
    *len = strlen(s);
    while (*len > 0 && strchr(white, s[*len - 1])) --*len;
    return s;
}

static int by_key(const void *a, const void *b) {
    return strcmp((*(cJSON *const *)a)->string, (*(cJSON *const *)b)->string);
}

static int add_value(struct buf *out, const cJSON *v);

// The order of keys depends on the client's library.
static int add_object(struct buf *out, const cJSON *v) {
    int n = cJSON_GetArraySize(v), i = 0;
    const cJSON *item, **sorted = malloc(((size_t)n + 1) * sizeof *sorted);
    if (!sorted) return E_NOMEM;
    cJSON_ArrayForEach(item, v) sorted[i++] = item;
    qsort(sorted, (size_t)n, sizeof *sorted, by_key);
    int rc = 0;
    buf_addc(out, '{');
    for (i = 0; i < n && rc == 0; i++) {
        buf_addz(out, sorted[i]->string);
        buf_addc(out, '\x1e');
        rc = add_value(out, sorted[i]);
    }
    buf_addc(out, '}');
    free(sorted);
    return rc;
}

static int add_value(struct buf *out, const cJSON *v) {
    const cJSON *item;
    if (cJSON_IsObject(v)) return add_object(out, v);
    if (cJSON_IsArray(v)) {
        buf_addc(out, '[');
        cJSON_ArrayForEach(item, v) TRY(add_value(out, item));
        buf_addc(out, ']');
    } else if (cJSON_IsString(v)) {
        buf_addc(out, '"');
        buf_addz(out, v->valuestring);
        buf_addc(out, '\x1f');
    } else if (cJSON_IsNumber(v)) {
        buf_add_double(out, v->valuedouble);
        buf_addc(out, ',');
    } else {
        buf_addz(out, cJSON_IsTrue(v) ? "t" : cJSON_IsFalse(v) ? "f" : "n");
    }
    return 0;
}

// Arguments are an object, or the text of one.
static int add_arguments(struct buf *out, const cJSON *v) {
    const char *text = cJSON_GetStringValue(v);
    cJSON *parsed = text ? json_parse(text, strlen(text), &json_limits_message, NULL) : NULL;
    int rc = v ? add_value(out, parsed ? parsed : v) : 0;
    cJSON_Delete(parsed);
    return rc;
}

struct hash128 told_start(const char *owner) {
    return hash_of(owner, strlen(owner));
}

static void hash_into(struct hash128 *chain, const char *text, size_t len) {
    *chain = siphash128((uint64_t[2]){chain->lo, chain->hi}, text, len);
}

// The form of a message without its calls.
struct words {
    const char *role, *content;
    size_t role_len, content_len;
};

static size_t words_len(const struct words *w) {
    return w->role_len + w->content_len + 2;
}

static void words_write(const struct words *w, char *to) {
    memcpy(to, w->role, w->role_len);
    to[w->role_len] = '\x1f';
    memcpy(to + w->role_len + 1, w->content, w->content_len);
    to[words_len(w) - 1] = '\x1f';
}

int told_add(struct hash128 *chain, const cJSON *message) {
    const cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls"), *call;
    char few[SHORT_BYTES];
    struct buf out;
    int rc = 0;
    struct words w = {.role = string_of(message, "role")};
    w.role_len = strlen(w.role);
    w.content = trimmed(string_of(message, "content"), &w.content_len);
    if (!calls && words_len(&w) <= sizeof few) { // a conversation may have hundreds of these
        words_write(&w, few);
        hash_into(chain, few, words_len(&w));
        return 0;
    }
    buf_init(&out, CANONICAL_BYTES);
    if (buf_reserve(&out, words_len(&w)) < 0) return E_NOMEM;
    words_write(&w, out.data);
    out.len = words_len(&w);
    cJSON_ArrayForEach(call, calls) {
        const cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
        buf_addf(&out, "call\x1f%s\x1f", string_of(function, "name"));
        if (rc == 0)
            rc = add_arguments(&out, cJSON_GetObjectItemCaseSensitive(function, "arguments"));
    }
    if (rc == 0 && out.error) rc = E_NOMEM;
    if (rc == 0) hash_into(chain, buf_z(&out), out.len);
    buf_release(&out);
    return rc;
}

// --- the answer ---

static int take_pieces(struct answer_parser *p, struct buf *text, struct buf *thinking,
                       cJSON *calls) {
    struct answer_piece piece;
    struct buf arguments;
    char name[sizeof p->name] = "";
    int rc;
    buf_init(&arguments, SHOWN_BYTES);
    while ((rc = answer_parser_next(p, &piece)) == 1) {
        if (piece.kind == PIECE_TEXT) buf_add(text, piece.text, piece.len);
        if (piece.kind == PIECE_THINKING) buf_add(thinking, piece.text, piece.len);
        if (piece.kind == PIECE_TOOL_BEGIN) {
            snprintf(name, sizeof name, "%s", piece.text);
            buf_reset(&arguments);
        }
        if (piece.kind == PIECE_TOOL_ARGUMENTS) buf_add(&arguments, piece.text, piece.len);
        if (piece.kind != PIECE_TOOL_END) continue;
        cJSON *call = cJSON_CreateObject();
        cJSON_AddStringToObject(call, "type", "function");
        cJSON *function = cJSON_AddObjectToObject(call, "function");
        cJSON_AddStringToObject(function, "name", name);
        cJSON *value = json_parse(buf_z(&arguments), arguments.len, &json_limits_message, NULL);
        if (!value) value = cJSON_CreateString(buf_z(&arguments));
        cJSON_AddItemToObject(function, "arguments", value);
        cJSON_AddItemToArray(calls, call);
    }
    buf_release(&arguments);
    return rc;
}

// An answer as the assistant's message. NULL: no memory.
static cJSON *message_of(struct chat_syntax syntax, const cJSON *tools, bool thinks,
                         const char *text, size_t len) {
    struct answer_parser p;
    struct buf said, thinking;
    cJSON *message = cJSON_CreateObject(), *calls = cJSON_CreateArray();
    answer_parser_init(&p, syntax, tools, thinks);
    buf_init(&said, SHOWN_BYTES);
    buf_init(&thinking, SHOWN_BYTES);
    answer_parser_feed(&p, text, len);
    answer_parser_end(&p);
    int rc = message && calls ? take_pieces(&p, &said, &thinking, calls) : E_NOMEM;
    if (rc == 0) {
        cJSON_AddStringToObject(message, "role", "assistant");
        cJSON_AddStringToObject(message, "content", buf_z(&said));
        if (thinking.len) cJSON_AddStringToObject(message, "reasoning_content", buf_z(&thinking));
        if (cJSON_GetArraySize(calls) > 0) {
            cJSON_AddItemToObject(message, "tool_calls", calls);
            calls = NULL;
        }
    } else {
        cJSON_Delete(message);
        message = NULL;
    }
    cJSON_Delete(calls);
    buf_release(&said);
    buf_release(&thinking);
    answer_parser_release(&p);
    return message;
}

// --- what is stored ---

struct told *told_new(const struct told_of *of) {
    struct told *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    atomic_init(&t->holds, 1);
    t->chain = of->chain;
    t->len = of->len;
    t->hash = hash_of(of->text, of->len);
    t->thinks = of->thinks;
    t->tools = of->tools ? cJSON_Duplicate(of->tools, true) : NULL;
    t->messages = of->messages ? cJSON_Duplicate(of->messages, true) : NULL;
    if ((!of->tools || t->tools) && (!of->messages || t->messages)) return t;
    told_free(t);
    return NULL;
}

// The chain that told_digits wrote.
static bool read_digits(const char *told, struct hash128 *chain) {
    unsigned long long hi, lo;
    if (strlen(told) != TOLD_DIGITS || sscanf(told, "%16llx%16llx", &hi, &lo) != 2) return false;
    chain->hi = hi;
    chain->lo = lo;
    return true;
}

struct told *told_behind(struct told *t, const char *told) {
    const cJSON *message;
    struct hash128 chain;
    if (!t || !t->messages) return told_hold(t);
    if (!told || !read_digits(told, &chain)) return NULL;
    cJSON_ArrayForEach(message, t->messages) if (told_add(&chain, message) < 0) return NULL;
    struct told *behind = calloc(1, sizeof *behind);
    if (!behind) return NULL;
    atomic_init(&behind->holds, 1);
    behind->chain = chain;
    behind->hash = t->hash;
    behind->len = t->len;
    behind->thinks = t->thinks;
    strcpy(behind->follows, told); // read_digits has seen its length
    behind->tools = t->tools ? cJSON_Duplicate(t->tools, true) : NULL;
    if (!t->tools || behind->tools) return behind;
    told_free(behind);
    return NULL;
}

static void put_part(struct json_writer *w, const char *size, const char *hash, size_t len,
                     struct hash128 h) {
    char digits[TOLD_DIGITS + 1];
    told_digits(h, digits);
    json_form(w, "%s:%zu,%s:%s", size, len, hash, digits);
}

static void put_begin(struct json_writer *w, const struct told *t) {
    json_open(w, NULL, '{');
    if (t->follows[0]) json_put_string(w, "behind", t->follows);
    put_part(w, "prompt", "prompt_hash", t->len, t->hash);
}

static int take(struct json_writer *w, char **shown) {
    json_close(w, '}');
    *shown = buf_take(w->buf, NULL);
    buf_release(w->buf);
    return *shown ? 0 : E_NOMEM;
}

int told_begin(const struct told *t, char **shown) {
    struct buf out;
    struct json_writer w;
    buf_init(&out, SHOWN_BYTES);
    json_writer_init(&w, &out);
    put_begin(&w, t);
    return take(&w, shown);
}

int told_end(const struct told *t, const struct engine *e, const char *text, size_t len,
             const int32_t *ids, size_t n, char **told, char **shown) {
    struct hash128 chain = t->chain;
    struct buf drawn, out;
    struct json_writer w;
    char digits[TOLD_DIGITS + 1];
    bool closed = n > 0 && ids[n - 1] == engine_info(e)->end_of_turn;
    cJSON *message = message_of(engine_syntax(e), t->tools, t->thinks, text, len);
    int rc = message ? told_add(&chain, message) : E_NOMEM;
    buf_init(&drawn, SHOWN_BYTES);
    for (size_t i = 0; i + closed < n; i++) {
        size_t bytes = 0;
        const char *s = engine_token_bytes(e, ids[i], &bytes);
        if (s) buf_add(&drawn, s, bytes);
    }
    buf_init(&out, SHOWN_BYTES);
    json_writer_init(&w, &out);
    put_begin(&w, t);
    put_part(&w, "said", "said_hash", drawn.len, hash_of(buf_z(&drawn), drawn.len));
    json_put_bool(&w, "closed", closed);
    const char *thought = string_of(message, "reasoning_content");
    if (thought[0]) json_put_string(&w, "thought", thought);
    buf_release(&drawn);
    cJSON_Delete(message);
    told_digits(chain, digits);
    *told = rc == 0 ? strdup(digits) : NULL;
    rc = take(&w, shown);
    if (rc == 0 && *told) return 0;
    free(*told);
    free(*shown);
    *told = *shown = NULL;
    return E_NOMEM;
}

int told_given(const char *prompt, size_t prompt_len, const char *said, size_t said_len,
               const char *thought, char **shown) {
    struct buf out;
    struct json_writer w;
    buf_init(&out, SHOWN_BYTES);
    json_writer_init(&w, &out);
    json_open(&w, NULL, '{');
    put_part(&w, "prompt", "prompt_hash", prompt_len, hash_of(prompt, prompt_len));
    put_part(&w, "said", "said_hash", said_len, hash_of(said, said_len));
    if (thought[0]) json_put_string(&w, "thought", thought);
    return take(&w, shown);
}

// --- comparing ---

static bool is_text(const cJSON *shown, const char *size, const char *hash, const char *text,
                    size_t len, size_t *end) {
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(shown, size);
    char digits[TOLD_DIGITS + 1];
    if (!cJSON_IsNumber(n) || n->valuedouble < 0 || n->valuedouble > (double)(len - *end))
        return false;
    size_t bytes = (size_t)n->valuedouble;
    told_digits(hash_of(text + *end, bytes), digits);
    *end += bytes;
    return strcmp(digits, string_of(shown, hash)) == 0;
}

size_t told_length(const char *shown) {
    cJSON *parsed = json_parse(shown, strlen(shown), &json_limits_file, NULL);
    int64_t prompt = 0, said = 0;
    json_get_int(parsed, "prompt", 0, INT64_MAX, &prompt, NULL);
    json_get_int(parsed, "said", 0, INT64_MAX, &said, NULL);
    cJSON_Delete(parsed);
    return (size_t)(prompt + said);
}

const char *told_follows(const cJSON *shown) {
    return string_of(shown, "behind");
}

bool told_suits(const cJSON *shown, const struct chat_rendering *r, size_t *from) {
    size_t len, end = *from;
    const char *text = engine_rendering_text(r, &len);
    if (!is_text(shown, "prompt", "prompt_hash", text, len, &end) ||
        !is_text(shown, "said", "said_hash", text, len, &end) || end >= len)
        return false;
    *from = end;
    if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(shown, "closed"))) return true;
    end = engine_rendering_turn_end(r, end);
    if (end == SIZE_MAX || end >= len) return false;
    *from = end;
    return true;
}
