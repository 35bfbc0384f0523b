// See answer_parser.h. The parser holds back an incomplete marker, and white space that may stand before
// one. It reads a call's object up to the arguments in one go, and from the start again when more text has
// come: that part is short. The bytes of the arguments are passed on as they come.
#include "engine/text/answer_parser.h"
#include "engine/text/call_syntax.h"
#include "engine/text/harmony_header.h"
#include <string.h>

#define HELD_MAX 16384 // bytes of a call before its arguments; a longer text is no call
#define ANSWER_BYTES ((size_t)64 << 20)
#define THOUGHT_BYTES                                                                              \
    ((size_t)1 << 20) // of thinking behind its first marker; calls of more are not found
#define STEP_ON 2

void answer_parser_init(struct answer_parser *p, struct chat_syntax syntax, const cJSON *tools,
                        bool thinks) {
    bool served = syntax.tools != TOOL_SYNTAX_NONE && syntax.tools != TOOL_SYNTAX_OTHER &&
                  cJSON_GetArraySize(tools) > 0;
    *p = (struct answer_parser){
        .syntax = syntax, .tools = tools, .looks = served, .fresh = true, .name = ""};
    p->state = thinks && syntax.think_close ? ANSWER_THINKS : ANSWER_BEGINS;
    p->words = PIECE_THINKING;
    if (syntax.tools == TOOL_SYNTAX_HARMONY)
        p->state = p->state == ANSWER_THINKS ? ANSWER_MESSAGE : ANSWER_HEADER;
    buf_init(&p->in, ANSWER_BYTES);
    buf_init(&p->out, ANSWER_BYTES);
    buf_init(&p->thought, THOUGHT_BYTES);
}

void answer_parser_release(struct answer_parser *p) {
    buf_release(&p->in);
    buf_release(&p->out);
    buf_release(&p->thought);
}

void answer_parser_feed(struct answer_parser *p, const char *text, size_t len) {
    if (p->from > 0) buf_remove_front(&p->in, p->from);
    p->from = 0;
    if (len && buf_add(&p->in, text, len) < 0) p->failed = true;
}

void answer_parser_end(struct answer_parser *p) {
    p->ended = true;
}

bool answer_parser_thinks(const struct answer_parser *p) {
    return p->state == ANSWER_THINKS || (p->state == ANSWER_MESSAGE && p->words == PIECE_THINKING);
}

// --- what is there ---

static struct span rest_of(const struct answer_parser *p) {
    return (struct span){buf_z(&p->in) + p->from, p->in.len - p->from};
}

static int give(struct answer_parser *p, enum answer_piece_kind kind, const char *text, size_t len,
                struct answer_piece *out) {
    bool call = kind >= PIECE_TOOL_BEGIN;
    *out = (struct answer_piece){kind, text, len, call ? p->n_tools - 1 : 0};
    p->fresh = false;
    return 1;
}

// The first n bytes of the rest as a piece.
static int pass(struct answer_parser *p, enum answer_piece_kind kind, size_t n,
                struct answer_piece *out) {
    const char *text = buf_z(&p->in) + p->from;
    p->from += n;
    return give(p, kind, text, n, out);
}

static void skip_space(struct answer_parser *p) {
    p->from += span_space(rest_of(p));
}

static void enter(struct answer_parser *p, enum answer_state state) {
    p->state = state;
    p->fresh = true;
}

static const char *const *markers_of(const struct answer_parser *p) {
    return call_markers(p->looks ? p->syntax.tools : TOOL_SYNTAX_NONE);
}

// The first marker's place and length; SIZE_MAX: none. *held: bytes at the end that may begin one.
static size_t find_marker(const struct answer_parser *p, struct span rest, size_t *len,
                          size_t *held) {
    size_t first = SIZE_MAX;
    *len = *held = 0;
    for (const char *const *m = markers_of(p); *m; m++) {
        size_t at = span_find(rest, *m), may = span_held(rest, *m);
        if (may > *held) *held = may;
        if (at >= first) continue;
        first = at;
        *len = (*m)[1] == 'f' ? 0 : strlen(*m); // <function= is read again
    }
    return first;
}

// --- thinking ---

// 1: the answer may begin with the marker, but only a part of it has come.
static int begin(struct answer_parser *p) {
    struct span rest = rest_of(p);
    size_t white = span_space(rest);
    struct span said = span_from(rest, white);
    const char *open = p->syntax.think_open;
    if (!open) {
        enter(p, ANSWER_SPEAKS);
    } else if (span_starts(said, open)) {
        p->from += white + strlen(open);
        enter(p, ANSWER_THINKS);
    } else if (p->ended || !span_begins(said, open)) {
        enter(p, ANSWER_SPEAKS);
    } else {
        return 1;
    }
    return 0;
}

// Keeps the thinking from its first marker on, for recover().
static void keep_thought(struct answer_parser *p, struct span thought) {
    size_t len, held;
    if (!p->tools || buf_add(&p->thought, thought.s, thought.len) < 0 || p->has_marker) return;
    const struct span kept = {buf_z(&p->thought), p->thought.len};
    const size_t at = find_marker(p, kept, &len, &held);
    p->has_marker = at != SIZE_MAX;
    buf_remove_front(&p->thought, p->has_marker ? at : kept.len - held);
}

// The template adds the white space at both ends of the thinking; it is dropped.
static int think(struct answer_parser *p, struct answer_piece *out) {
    const char *close = p->syntax.think_close;
    if (p->fresh) skip_space(p);
    struct span rest = rest_of(p);
    size_t at = span_find(rest, close);
    size_t n = at != SIZE_MAX ? at : p->ended ? rest.len : rest.len - span_held(rest, close);
    if (at != SIZE_MAX || !p->ended) n = span_trimmed(rest, n);
    if (n > 0) keep_thought(p, (struct span){rest.s, n});
    if (n > 0) return pass(p, PIECE_THINKING, n, out);
    if (at == SIZE_MAX) return 0;
    p->from += at + strlen(close);
    p->behind = true;
    enter(p, ANSWER_SPEAKS);
    return STEP_ON;
}

// --- text ---

static bool separates_calls(const struct answer_parser *p, char c) {
    bool plain = p->syntax.tools == TOOL_SYNTAX_JSON || p->syntax.tools == TOOL_SYNTAX_LLAMA;
    return plain && c == ';';
}

static int speak(struct answer_parser *p, struct answer_piece *out) {
    struct span rest = rest_of(p);
    size_t len, held;
    if (p->behind && p->fresh) {
        skip_space(p);
        rest = rest_of(p);
    }
    if (!p->looks) return rest.len ? pass(p, PIECE_TEXT, rest.len, out) : 0;
    // A call's object without a marker, which names one of the tools. Some models write calls so, small models forget
    // the marker, and so are forced calls where the template's form is unknown (ws/completion/forced_call.c).
    if (p->fresh) {
        size_t white = span_space(rest);
        if (white == rest.len && !p->ended) return 0;
        if (white < rest.len && rest.s[white] == '{') {
            p->guessed = true;
            p->state = ANSWER_CALLS;
            return STEP_ON;
        }
    }
    size_t at = find_marker(p, rest, &len, &held);
    size_t n = at != SIZE_MAX ? at : p->ended ? rest.len : rest.len - held;
    if (at != SIZE_MAX || !p->ended) n = span_trimmed(rest, n);
    if (n > 0) return pass(p, PIECE_TEXT, n, out);
    if (at == SIZE_MAX) return 0;
    p->from += at;
    p->guessed = p->listed = false;
    p->state = ANSWER_CALLS;
    return STEP_ON;
}

// --- calls ---

// It is no call: from the marker on, it is text.
static int no_call(struct answer_parser *p, struct answer_piece *out) {
    struct span rest = rest_of(p);
    size_t n = rest.len;
    for (const char *const *m = markers_of(p); *m; m++) { // the next one may be a call
        size_t at = span_find(span_from(rest, 1), *m);
        if (at < n) n = at + 1;
    }
    enter(p, ANSWER_SPEAKS);
    p->fresh = false;
    return rest.len ? pass(p, PIECE_TEXT, n, out) : 0;
}

static bool is_tool(const struct answer_parser *p, const char *name) {
    const cJSON *tool;
    if (!p->tools) return true;
    cJSON_ArrayForEach(tool, p->tools) {
        const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
        const char *known =
            cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(function, "name"));
        if (known && strcmp(known, name) == 0) return true;
    }
    return false;
}

static int begin_call(struct answer_parser *p, struct answer_piece *out) {
    p->n_tools++;
    return give(p, PIECE_TOOL_BEGIN, p->name, strlen(p->name), out);
}

// NAME[ARGS]{..}, NAME[CALL_ID]..[ARGS]{..}, NAME{..}: Mistral's newer form.
static int named_call(struct answer_parser *p, size_t from, struct answer_piece *out) {
    struct span rest = span_from(rest_of(p), from);
    size_t brace = span_find(rest, "{"), n = 0;
    if (brace == SIZE_MAX && rest.len < HELD_MAX && !p->ended) return 0;
    while (n < rest.len && n < sizeof p->name - 1 && span_is_name(rest.s[n])) n++;
    if (brace == SIZE_MAX || n == 0) return no_call(p, out);
    memcpy(p->name, rest.s, n);
    p->name[n] = '\0';
    if (p->strict && !is_tool(p, p->name)) return no_call(p, out);
    p->from += from + brace;
    p->depth = 0;
    p->in_string = p->escaped = false;
    p->state = ANSWER_ARGUMENTS;
    p->listed = false;
    p->named = true;
    return begin_call(p, out);
}

// {"name":..,"arguments":..}
static int object_call(struct answer_parser *p, size_t from, struct answer_piece *out) {
    struct call_head head;
    struct span rest = span_from(rest_of(p), from);
    enum call_found found = call_head_read(rest, p->guessed, &head, &p->out);
    bool wrong =
        found == CALL_NONE || (found == CALL_INCOMPLETE && (p->ended || rest.len > HELD_MAX));
    if (!wrong && found != CALL_INCOMPLETE && (p->guessed || p->strict))
        wrong = !is_tool(p, head.name);
    if (wrong) return no_call(p, out);
    if (found == CALL_INCOMPLETE) return 0;
    memcpy(p->name, head.name, sizeof p->name);
    p->from += from + head.end;
    p->depth = 0;
    p->in_string = p->escaped = false;
    p->state = found == CALL_WHOLE ? ANSWER_WHOLE_CALL : ANSWER_ARGUMENTS;
    p->named = false;
    return begin_call(p, out);
}

// <function=NAME>
static int xml_call(struct answer_parser *p, size_t from, struct answer_piece *out) {
    static const char open[] = "<function=";
    struct span rest = span_from(rest_of(p), from);
    size_t end = span_find(rest, ">"), at = sizeof open - 1;
    bool more = !p->ended && rest.len < HELD_MAX;
    if (rest.len && rest.s[0] == '{') return object_call(p, from, out);
    if (more &&
        (rest.len < at ? span_begins(rest, open) : span_starts(rest, open) && end == SIZE_MAX))
        return 0;
    if (!span_starts(rest, open) || end == SIZE_MAX || end - at >= sizeof p->name || end == at)
        return no_call(p, out);
    memcpy(p->name, rest.s + at, end - at);
    p->name[end - at] = '\0';
    if (p->strict && !is_tool(p, p->name)) return no_call(p, out);
    p->from += from + end + 1;
    p->n_params = 0;
    p->state = ANSWER_PARAMETERS;
    return begin_call(p, out);
}

// NAME, then <arg_key> or the end of the call
static int glm_call(struct answer_parser *p, size_t from, struct answer_piece *out) {
    static const char key[] = "<arg_key>", end[] = "</tool_call>";
    const struct span rest = span_from(rest_of(p), from);
    size_t n = 0;
    if (rest.len && rest.s[0] == '{') return object_call(p, from, out);
    while (n < rest.len && span_is_name(rest.s[n])) n++;
    const struct span next = span_from(rest, n + span_space(span_from(rest, n)));
    const bool may = span_begins(next, key) || span_begins(next, end);
    if (may && !p->ended && rest.len < HELD_MAX) return 0;
    if (n == 0 || n >= sizeof p->name || !(span_starts(next, key) || span_starts(next, end)))
        return no_call(p, out);
    memcpy(p->name, rest.s, n);
    p->name[n] = '\0';
    if (p->strict && !is_tool(p, p->name)) return no_call(p, out);
    p->from += from + n;
    p->n_params = 0;
    p->state = ANSWER_PARAMETERS;
    return begin_call(p, out);
}

// The rest begins with the marker, because both are text if this is no call.
static int call(struct answer_parser *p, struct answer_piece *out) {
    struct span rest = rest_of(p);
    size_t at = 0;
    for (const char *const *m = markers_of(p); *m && !p->listed; m++)
        if (span_starts(rest, *m) && (*m)[1] != 'f') at = strlen(*m);
    at += span_space(span_from(rest, at));
    if (at == rest.len) return p->ended ? no_call(p, out) : 0;
    if (p->syntax.tools == TOOL_SYNTAX_XML && !p->guessed) return xml_call(p, at, out);
    if (p->syntax.tools == TOOL_SYNTAX_GLM && !p->guessed) return glm_call(p, at, out);
    const bool lists =
        p->syntax.tools == TOOL_SYNTAX_MISTRAL || p->syntax.tools == TOOL_SYNTAX_LIST;
    if (!lists || rest.s[at] == '{') return object_call(p, at, out);
    if (rest.s[at] != '[')
        return p->listed || p->syntax.tools == TOOL_SYNTAX_LIST ? no_call(p, out)
                                                                : named_call(p, at, out);
    size_t item = at + 1 + span_space(span_from(rest, at + 1));
    if (item == rest.len && !p->ended) return 0;
    int rc = object_call(p, item, out);
    if (p->state != ANSWER_CALLS && p->state != ANSWER_SPEAKS) p->listed = true;
    return rc;
}

static bool is_raw_control(const struct answer_parser *p, char c) {
    return p->in_string && (unsigned char)c < 0x20;
}

// A line end inside of a string: models write it as it is, and JSON wants an escape.
static int escape_control(struct answer_parser *p, char c, struct answer_piece *out) {
    buf_reset(&p->out);
    call_escape(&p->out, c, p->escaped);
    p->escaped = false;
    p->from++;
    if (p->out.error) return E_NOMEM;
    return give(p, PIECE_TOOL_ARGUMENTS, buf_z(&p->out), p->out.len, out);
}

// Passes the value on as it comes, up to its end.
static int arguments(struct answer_parser *p, struct answer_piece *out) {
    struct span rest = rest_of(p);
    size_t n = 0;
    bool done = false;
    if (rest.len && is_raw_control(p, rest.s[0])) return escape_control(p, rest.s[0], out);
    while (n < rest.len && !done && !is_raw_control(p, rest.s[n])) {
        char c = rest.s[n++];
        if (p->in_string) {
            if (p->escaped)
                p->escaped = false;
            else if (c == '\\')
                p->escaped = true;
            else if (c == '"')
                p->in_string = false;
            continue;
        }
        if (c == '"') p->in_string = true;
        if (c == '{' || c == '[') p->depth++;
        if (c == '}' || c == ']') done = --p->depth <= 0;
    }
    if (done) {
        p->state = p->named ? ANSWER_CALL_ENDS : ANSWER_MEMBERS;
    } else if (p->ended && n == rest.len) {
        p->state = ANSWER_CALL_ENDS;
    }
    if (n > 0) return pass(p, PIECE_TOOL_ARGUMENTS, n, out);
    return done || p->ended ? STEP_ON : 0;
}

// Further members of the call's object are dropped.
static int members(struct answer_parser *p) {
    size_t end = call_object_end(rest_of(p));
    if (end == SIZE_MAX && !p->ended) return 0;
    p->from = end == SIZE_MAX ? p->in.len : p->from + end;
    p->state = ANSWER_CALL_ENDS;
    return STEP_ON;
}

static int whole_arguments(struct answer_parser *p, struct answer_piece *out) {
    p->state = ANSWER_CALL_ENDS;
    if (p->out.len == 0) buf_addz(&p->out, "{}");
    if (p->out.error) return E_NOMEM;
    return give(p, PIECE_TOOL_ARGUMENTS, buf_z(&p->out), p->out.len, out);
}

// <parameter=KEY>VALUE</parameter> ... </function>, or GLM's
static int parameters(struct answer_parser *p, struct answer_piece *out) {
    struct call_parameter one;
    enum call_found found = p->syntax.tools == TOOL_SYNTAX_GLM
                                ? call_argument_read(rest_of(p), p->tools, p->name, &one)
                                : call_parameter_read(rest_of(p), p->tools, p->name, &one);
    if (found == CALL_INCOMPLETE && !p->ended) return 0;
    buf_reset(&p->out);
    if (found == CALL_PARAMETER) {
        buf_addz(&p->out, p->n_params++ ? ", " : "{");
        call_parameter_write(&p->out, rest_of(p), &one);
        p->from += one.end;
    } else {
        buf_addz(&p->out, p->n_params ? "}" : "{}");
        p->from += found == CALL_WHOLE ? one.end : 0;
        p->state = ANSWER_CALL_ENDS;
    }
    if (p->out.error) return E_NOMEM;
    return give(p, PIECE_TOOL_ARGUMENTS, buf_z(&p->out), p->out.len, out);
}

// After a call: its closing mark, the next call, or text.
static int between(struct answer_parser *p) {
    const bool list = p->syntax.tools == TOOL_SYNTAX_LIST;
    const char *close = list ? "<|/tool_call|>" : "</tool_call>";
    if (p->syntax.tools == TOOL_SYNTAX_HARMONY) {
        enter(p, ANSWER_HEADER);
        return STEP_ON;
    }
    skip_space(p);
    struct span rest = rest_of(p);
    if (rest.len == 0) return 0;
    bool tagged = list || p->syntax.tools == TOOL_SYNTAX_HERMES ||
                  p->syntax.tools == TOOL_SYNTAX_XML || p->syntax.tools == TOOL_SYNTAX_GLM;
    if (tagged && !p->ended && rest.len < strlen(close) && span_begins(rest, close)) return 0;
    if (list && p->listed && rest.s[0] == ']') { // the mark may follow
        p->from++;
        p->listed = false;
        return STEP_ON;
    }
    if (tagged && span_starts(rest, close)) {
        p->from += strlen(close);
    } else if (p->listed && rest.s[0] == ',') {
        p->from++;
        p->state = ANSWER_CALLS;
        return STEP_ON;
    } else if ((p->listed && rest.s[0] == ']') || separates_calls(p, rest.s[0])) {
        p->from++;
    }
    p->listed = false;
    p->behind = true;
    enter(p, ANSWER_SPEAKS);
    return STEP_ON;
}

// --- harmony ---

// The tool that the header's message goes to, into p->name.
static bool takes_call(struct answer_parser *p, struct span header) {
    static const char space[] = "functions.";
    const char *word = NULL;
    size_t n = harmony_word(header, "to=", &word), skip = sizeof space - 1;
    if (n > skip && memcmp(word, space, skip) == 0) word += skip, n -= skip;
    if (n == 0 || n >= sizeof p->name || !p->looks) return false;
    memcpy(p->name, word, n);
    p->name[n] = '\0';
    return !p->strict || is_tool(p, p->name);
}

static int header(struct answer_parser *p, struct answer_piece *out) {
    static const char message[] = "<|message|>";
    struct span rest = rest_of(p);
    const size_t white = span_space(rest), end = span_find(rest, message);
    const struct span said = span_from(rest, white);
    const char *channel = NULL;
    if (said.len == 0 && !p->ended) return 0;
    // An answer without channels, as a forced call is.
    if (!harmony_is_header(said) || (end == SIZE_MAX && rest.len > HELD_MAX)) {
        enter(p, ANSWER_SPEAKS);
        return STEP_ON;
    }
    if (end == SIZE_MAX) {
        if (p->ended) p->from = p->in.len;
        return 0;
    }
    const struct span head = {rest.s, end};
    const size_t n = harmony_word(head, "<|channel|>", &channel);
    p->from += end + sizeof message - 1;
    if (takes_call(p, head)) {
        p->state = ANSWER_CALL_BODY;
        return begin_call(p, out);
    }
    p->words = n == 8 && memcmp(channel, "analysis", 8) == 0 ? PIECE_THINKING : PIECE_TEXT;
    enter(p, ANSWER_MESSAGE);
    return STEP_ON;
}

static int message(struct answer_parser *p, struct answer_piece *out) {
    if (p->fresh) skip_space(p);
    struct span rest = rest_of(p);
    size_t at = SIZE_MAX, held = 0, which = 0;
    for (size_t i = 0; i < HARMONY_ENDS; i++) {
        const size_t found = span_find(rest, harmony_ends[i]),
                     may = span_held(rest, harmony_ends[i]);
        if (may > held) held = may;
        if (found >= at) continue;
        at = found;
        which = i;
    }
    size_t n = at != SIZE_MAX ? at : p->ended ? rest.len : rest.len - held;
    if (at != SIZE_MAX || !p->ended) n = span_trimmed(rest, n);
    if (n > 0) return pass(p, p->words, n, out);
    if (at == SIZE_MAX) return 0;
    p->from += at + (which == HARMONY_START ? 0 : strlen(harmony_ends[which]));
    enter(p, ANSWER_HEADER);
    return STEP_ON;
}

// An object, or a call without arguments.
static int call_body(struct answer_parser *p) {
    skip_space(p);
    const struct span rest = rest_of(p);
    if (rest.len == 0 && !p->ended) return 0;
    p->depth = 0;
    p->in_string = p->escaped = false;
    p->named = true;
    buf_reset(&p->out);
    p->state = rest.len && rest.s[0] == '{' ? ANSWER_ARGUMENTS : ANSWER_WHOLE_CALL;
    return STEP_ON;
}

// 1: a piece; 0: more is needed; STEP_ON: the new state goes on.
static int step(struct answer_parser *p, struct answer_piece *out) {
    switch (p->state) {
    case ANSWER_BEGINS:
        return begin(p) ? 0 : STEP_ON;
    case ANSWER_THINKS:
        return think(p, out);
    case ANSWER_SPEAKS:
        return speak(p, out);
    case ANSWER_CALLS:
        return call(p, out);
    case ANSWER_WHOLE_CALL:
        return whole_arguments(p, out);
    case ANSWER_ARGUMENTS:
        return arguments(p, out);
    case ANSWER_MEMBERS:
        return members(p);
    case ANSWER_PARAMETERS:
        return parameters(p, out);
    case ANSWER_CALL_ENDS:
        p->state = ANSWER_BETWEEN;
        return give(p, PIECE_TOOL_END, "", 0, out);
    case ANSWER_BETWEEN:
        return between(p);
    case ANSWER_HEADER:
        return header(p, out);
    case ANSWER_MESSAGE:
        return message(p, out);
    case ANSWER_CALL_BODY:
        return call_body(p);
    }
    return 0;
}

// --- calls at the thinking's end ---

// Where the calls at the thinking's end begin. SIZE_MAX: text follows the last call, or the call is incomplete.
static size_t last_calls(const struct answer_parser *p) {
    struct answer_parser probe;
    struct answer_piece piece;
    struct buf arguments;
    size_t start = 0;
    bool calls = false;
    int rc;
    answer_parser_init(&probe, p->syntax, p->tools, false);
    buf_init(&arguments, THOUGHT_BYTES);
    probe.state = ANSWER_SPEAKS;
    probe.strict = true;
    answer_parser_feed(&probe, buf_z(&p->thought), p->thought.len);
    answer_parser_end(&probe);
    while ((rc = answer_parser_next(&probe, &piece)) == 1) {
        if (piece.kind == PIECE_TOOL_BEGIN || piece.kind == PIECE_TEXT) buf_reset(&arguments);
        if (piece.kind == PIECE_TOOL_ARGUMENTS) buf_add(&arguments, piece.text, piece.len);
        if (piece.kind != PIECE_TEXT && piece.kind != PIECE_TOOL_END) continue;
        cJSON *whole = json_parse(buf_z(&arguments), arguments.len, &json_limits_message, NULL);
        calls = cJSON_IsObject(whole);
        if (!calls) start = probe.from;
        cJSON_Delete(whole);
    }
    answer_parser_release(&probe);
    buf_release(&arguments);
    return rc == 0 && calls ? start : SIZE_MAX;
}

// Some models write their call inside the thinking and stop. If nothing follows the thinking, the calls at its end become
// the answer's. They stay in the thinking too, because clients have received it.
static bool recover(struct answer_parser *p) {
    bool thought = p->state == ANSWER_THINKS || (p->state == ANSWER_SPEAKS && p->fresh);
    if (!p->ended || !p->has_marker || p->thought.error || p->n_tools > 0) return false;
    if (!thought || p->from < p->in.len) return false;
    const size_t start = last_calls(p);
    p->has_marker = false;
    if (start == SIZE_MAX) return false;
    p->from = 0;
    buf_reset(&p->in);
    answer_parser_feed(p, buf_z(&p->thought) + start, p->thought.len - start);
    p->behind = true;
    enter(p, ANSWER_SPEAKS);
    return true;
}

int answer_parser_next(struct answer_parser *p, struct answer_piece *out) {
    int rc;
    if (p->failed) return E_NOMEM;
    do {
        while ((rc = step(p, out)) == STEP_ON || (rc == 0 && recover(p))) {}
    } while (rc == 1 && p->single && p->n_tools > 1 && out->kind >= PIECE_TOOL_BEGIN);
    return p->failed ? E_NOMEM : rc;
}
