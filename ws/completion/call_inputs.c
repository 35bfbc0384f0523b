// See call_inputs.h.
#include "ws/completion/call_inputs.h"
#include <stdio.h>
#include <string.h>

void call_inputs_init(struct call_inputs *c, const cJSON *custom) {
    *c = (struct call_inputs){.custom = custom};
    buf_init(&c->held, SIZE_MAX / 2);
    buf_init(&c->text, SIZE_MAX / 2);
}

void call_inputs_release(struct call_inputs *c) {
    buf_release(&c->held);
    buf_release(&c->text);
}

static bool is_named(const cJSON *names, const char *name) {
    const cJSON *one;
    cJSON_ArrayForEach(one, names) if (strcmp(one->valuestring, name) == 0) return true;
    return false;
}

// --- the beginning -------------------------------------------------------------------------------

// Whether the held bytes begin with {"input":" and white space anywhere in it. 1: *used bytes do; 0: more must come;
// -1: they are something else.
static int match_beginning(const struct buf *held, size_t *used) {
    static const char *const parts[] = {"{", "\"input\"", ":", "\""};
    const char *p = buf_z(held), *end = p + held->len;
    for (int i = 0; i < 4; i++) {
        size_t n = strlen(parts[i]), left;
        while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
        left = (size_t)(end - p);
        if (memcmp(p, parts[i], left < n ? left : n) != 0) return -1;
        if (left < n) return 0;
        p += n;
    }
    *used = (size_t)(p - buf_z(held));
    return 1;
}

// --- the string ----------------------------------------------------------------------------------

// How many bytes the escape at p has, two of \uXXXX for a character of two halves. 0: more must come.
static size_t escape_len(const char *p, size_t len) {
    if (len < 2) return 0;
    if (p[1] != 'u') return 2;
    if (len < 6) return 0;
    bool half = (p[2] | 0x20) == 'd' && strchr("89abAB", p[3]);
    if (!half) return 6;
    if (len < 12 && (len < 7 || p[6] == '\\')) return 0;
    return p[6] == '\\' && p[7] == 'u' ? 12 : 6;
}

static void put_escape(struct buf *out, const char *p, size_t len) {
    char text[16];
    snprintf(text, sizeof text, "\"%.*s\"", (int)len, p);
    cJSON *v = json_parse(text, strlen(text), &json_limits_message, NULL);
    buf_addz(out, cJSON_IsString(v) ? v->valuestring : "\xef\xbf\xbd"); // U+FFFD: half a character
    cJSON_Delete(v);
}

// Decodes what is whole. whole: nothing more comes.
static void take_text(struct call_inputs *c, bool whole) {
    const char *p = buf_z(&c->held);
    size_t at = 0, len = c->held.len;
    while (at < len && p[at] != '"') {
        if (p[at] != '\\') {
            buf_addc(&c->text, p[at++]);
            continue;
        }
        size_t n = escape_len(p + at, len - at);
        if (n == 0 && !whole) break;
        if (n == 0) n = len - at; // cut off within an escape
        put_escape(&c->text, p + at, n < 12 ? n : 12);
        at += n;
    }
    if (at < len && p[at] == '"') c->state = CALL_INPUT_OVER;
    buf_remove_front(&c->held, c->state == CALL_INPUT_OVER ? len : at);
}

// --- pieces --------------------------------------------------------------------------------------

static void decode(struct call_inputs *c, bool whole) {
    size_t used = 0;
    int begins = c->state == CALL_INPUT_BEGINS ? match_beginning(&c->held, &used) : -1;
    if (begins > 0) {
        buf_remove_front(&c->held, used);
        c->state = CALL_INPUT_TEXT;
    } else if (c->state == CALL_INPUT_BEGINS && (begins < 0 || whole)) {
        c->state = CALL_INPUT_OTHER;
    }
    if (c->state == CALL_INPUT_TEXT) {
        take_text(c, whole);
    } else if (c->state == CALL_INPUT_OTHER) {
        buf_add(&c->text, c->held.data, c->held.len);
        buf_reset(&c->held);
    } else if (c->state == CALL_INPUT_OVER) {
        buf_reset(&c->held);
    }
}

// Turns the piece into one of the input. False: nothing of it can be given yet.
static bool translate(struct call_inputs *c, struct answer_piece *piece) {
    bool ends = piece->kind == PIECE_TOOL_END;
    buf_reset(&c->text);
    if (!ends) buf_add(&c->held, piece->text, piece->len);
    decode(c, ends);
    if (ends && c->text.len == 0) return true;
    c->ending = ends;
    c->end = *piece;
    piece->kind = PIECE_TOOL_ARGUMENTS;
    piece->text = buf_z(&c->text);
    piece->len = c->text.len;
    return c->text.len > 0;
}

int call_inputs_next(struct call_inputs *c, struct answer_parser *p, struct answer_piece *out) {
    if (c->ending) {
        c->ending = false;
        *out = c->end;
        return 1;
    }
    for (;;) {
        int rc = answer_parser_next(p, out);
        if (rc <= 0) return rc;
        if (out->kind == PIECE_TOOL_BEGIN) {
            c->is_custom = is_named(c->custom, out->text);
            c->state = CALL_INPUT_BEGINS;
            buf_reset(&c->held);
        }
        bool call = out->kind == PIECE_TOOL_ARGUMENTS || out->kind == PIECE_TOOL_END;
        if (!call || !c->is_custom || translate(c, out)) break;
    }
    return c->held.error || c->text.error ? E_NOMEM : 1;
}
