// Prints the result of `parley replay`. See replay_report.h.
#include "ws/cli/replay_report.h"
#include "base/json_form.h"
#include "base/utf8.h"
#include "ws/cli/terminal.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#define PIPE_COLUMNS 100

// Text and JSON use the same sentences.
static const char *const not_checked[] = {
    "tokenization: the recorded input ids are used",
    "the weights, except the samples of each tensor in the fingerprint",
    "when a cancelled turn stopped: it is compared up to its last token",
};

static const struct turn_record *record_of(const struct replay_report *r, int64_t turn) {
    return &r->stored->turns[turn].rec;
}

static uint32_t bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

// --- the head ----------------------------------------------------------------

static void put_side(struct json_writer *w, const char *key, const char *model,
                     const char *fingerprint) {
    json_form(w, "%s:{name:%s,fingerprint:%s}", key, model, fingerprint);
}

static void head_json(struct replay_report *r) {
    const struct session_record *s = &r->stored->rec;
    struct json_writer *w = &r->out.w;
    cli_json_begin(&r->out);
    json_form(w, "session:%s,model:{", s->id);
    put_side(w, "recorded", s->model, s->fingerprint);
    put_side(w, "now", r->now.model, r->now.fingerprint);
    json_form(w, "equal:%hhd},build:%s,instance:%s", !strcmp(s->fingerprint, r->now.fingerprint),
              r->now.build, r->now.instance);
}

static void word(const char *label, const char *text) {
    fputs(label, stdout);
    terminal_write(stdout, text, strlen(text)); // the database may contain any text
}

static void head_text(struct replay_report *r) {
    const struct session_record *s = &r->stored->rec;
    word("session ", s->id);
    printf(": %zu turns, %" PRId64 " tokens, memory %d with %d sinks\n", r->stored->n_turns,
           s->n_tokens, s->memory_len, s->sink_len);
    word("model ", s->model);
    word(", fingerprint ", s->fingerprint);
    if (strcmp(s->fingerprint, r->now.fingerprint)) {
        word("; replayed on A DIFFERENT model: ", r->now.model);
        word(", ", r->now.fingerprint);
    }
    word("\nreplayed by ", r->now.build);
    word("\n         on ", r->now.instance);
    putchar('\n');
}

void replay_report_begin(struct replay_report *r) {
    if (!r->json) {
        head_text(r);
        return;
    }
    head_json(r);
    json_open(&r->out.w, "turns", '[');
}

void replay_report_now(struct replay_report *r, const struct engine *e, const char *instance) {
    r->engine = e;
    r->now.instance = instance;
    if (r->json) return;
    word("replayed on ", instance);
    putchar('\n');
}

// --- one turn ----------------------------------------------------------------

static void put_token(struct json_writer *w, const struct replay_report *r, const char *key,
                      int32_t id, float logprob) {
    size_t len;
    if (id < 0) {
        json_put_null(w, key);
        return;
    }
    const char *text = engine_token_bytes(r->engine, id, &len);
    json_open(w, key, '{');
    json_form(w, "id:%d,text:%.*s,logprob:%g,logprob_bits:%ld}", id, (int)(text ? len : 0),
              text ? text : "", (double)logprob, (int64_t)bits_of(logprob));
}

// Collects the recorded alternatives of a token, if the turn has them. Returns how many.
static int32_t recorded_top(const struct stored_turn *t, const struct replay_divergence *d,
                            const struct engine_alternative **out) {
    const struct token_run *tokens = &t->tokens;
    if (!tokens->alternatives || d->index < 0 || (size_t)d->index >= tokens->n) return 0;
    int32_t n = t->rec.n_alternatives;
    *out = tokens->alternatives + d->index * n;
    return n < REPLAY_TOP ? n : REPLAY_TOP;
}

static void put_top(struct json_writer *w, const struct replay_report *r, const char *key,
                    const struct engine_alternative *top, int32_t n) {
    json_open(w, key, '[');
    for (int32_t i = 0; i < n; i++) put_token(w, r, NULL, top[i].id, top[i].logprob);
    json_close(w, ']');
}

static void put_divergence(struct json_writer *w, const struct replay_report *r, const char *key,
                           const struct stored_turn *t, const struct replay_divergence *d) {
    if (d->index < 0) {
        json_put_null(w, key);
        return;
    }
    json_form(w, "%s:{kind:%s,index:%ld,position:%ld", key, replay_kind_name(d->kind), d->index,
              d->position);
    put_token(w, r, "recorded", d->recorded.id, d->recorded.logprob);
    put_token(w, r, "now", d->now.id, d->now.logprob);
    json_put_double(w, "recorded_id_logprob", d->recorded_id_logprob); // NAN: null
    const struct engine_alternative *then = NULL;
    int32_t n_then = recorded_top(t, d, &then);
    if (n_then)
        put_top(w, r, "recorded_top", then, n_then);
    else
        json_put_null(w, "recorded_top");
    put_top(w, r, "top", d->top, d->n_top);
    json_close(w, '}');
}

static void turn_json(struct replay_report *r, const struct stored_turn *stored,
                      const struct replay_turn *f) {
    const struct turn_record *t = &stored->rec;
    struct json_writer *w = &r->out.w;
    json_form(w,
              "{turn:%ld,verdict:%s,tokens:%ld,compared:%ld,logprobs_differ:%ld,cut_short:%hhd,"
              "finish_reason:{recorded:%s,now:%s},build:%s,instance:%s,same_build:%hhd",
              f->turn, replay_verdict_name(f->verdict), t->n_output, f->n_compared,
              f->n_logprobs_differ, f->cut_short, f->recorded_finish[0] ? f->recorded_finish : NULL,
              f->finish[0] && !f->cut_short ? f->finish : NULL, replay_or_unknown(t->build),
              replay_or_unknown(t->instance), !strcmp(replay_or_unknown(t->build), r->now.build));
    int differs = replay_instance_differs(replay_or_unknown(t->instance), r->now.instance);
    json_form(w, "same_instance:%hhd,same_device:%hhd,same_settings:%hhd", differs == 0,
              !(differs & REPLAY_DEVICE), !(differs & REPLAY_SETTINGS));
    put_divergence(w, r, "first", stored, &f->first);
    put_divergence(w, r, "token", stored, &f->token);
    json_form(w, "error:%s}", f->verdict == REPLAY_FAILED ? f->why : NULL);
}

static void print_token(const struct replay_report *r, const char *label, int32_t id,
                        float logprob) {
    size_t len;
    fputs(label, stdout);
    if (id < 0) {
        puts("(the answer has ended)");
        return;
    }
    const char *text = engine_token_bytes(r->engine, id, &len);
    printf("%6d  %12.7f  ", id, (double)logprob);
    if (!text) {
        puts("(not in this model's vocabulary)");
        return;
    }
    putchar('"');
    for (size_t i = 0, n; i < len; i += n) { // on one line
        for (n = 0; i + n < len && text[i + n] != '\n' && text[i + n] != '\t';) n++;
        terminal_write(stdout, text + i, n);
        if (n > 0) continue;
        fputs(text[i] == '\n' ? "\\n" : "\\t", stdout);
        n = 1;
    }
    puts("\"");
}

static void print_top(const struct replay_report *r, const char *label,
                      const struct engine_alternative *top, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        print_token(r, i ? "               " : label, top[i].id, top[i].logprob);
}

static void print_divergence(const struct replay_report *r, const struct stored_turn *t,
                             const struct replay_divergence *d) {
    static const char *const words[] = {
        [REPLAY_TOKEN] = "different token",
        [REPLAY_LOGPROB] = "same token, different log-probability",
        [REPLAY_END] = "different end",
    };
    printf("  token %" PRId64 " of the answer, position %" PRId64 " of the log: %s\n", d->index,
           d->position, words[d->kind]);
    print_token(r, "    recorded   ", d->recorded.id, d->recorded.logprob);
    print_token(r, "    now        ", d->now.id, d->now.logprob);
    if (d->kind == REPLAY_LOGPROB)
        printf("    bits       %08" PRIx32 " recorded, %08" PRIx32 " now\n",
               bits_of(d->recorded.logprob), bits_of(d->now.logprob));
    if (d->kind == REPLAY_TOKEN && !isnan(d->recorded_id_logprob))
        printf("    log-probability of the recorded token now: %.7f\n", d->recorded_id_logprob);
    const struct engine_alternative *then = NULL;
    int32_t n_then = recorded_top(t, d, &then);
    print_top(r, "    on record  ", then, n_then);
    print_top(r, "    likeliest  ", d->top, d->n_top);
}

// Prints the recorded conditions that differ.
static void print_differences(const struct replay_report *r, const struct turn_record *t) {
    const char *what[4] = {0};
    int n = 0, differs = replay_instance_differs(replay_or_unknown(t->instance), r->now.instance);
    if (strcmp(r->stored->rec.fingerprint, r->now.fingerprint)) what[n++] = "the model";
    if (strcmp(replay_or_unknown(t->build), r->now.build)) what[n++] = "the build";
    if (differs & REPLAY_DEVICE) what[n++] = "the device";
    if (differs & REPLAY_SETTINGS) what[n++] = "settings";
    fputs(n ? "    differs from the record: "
            : "    nothing recorded differs: same model, build, device and settings",
          stdout);
    for (int i = 0; i < n; i++) printf("%s%s", i ? ", " : "", what[i]);
    putchar('\n');
}

// Prints build and instance once for consecutive turns that share them.
static void print_recorder(struct replay_report *r, const struct turn_record *t) {
    const char *build = replay_or_unknown(t->build), *instance = replay_or_unknown(t->instance);
    if (r->last && !strcmp(replay_or_unknown(r->last->build), build) &&
        !strcmp(replay_or_unknown(r->last->instance), instance))
        return;
    r->last = t;
    word("recorded by ", build);
    word("\n         on ", instance);
    putchar('\n');
}

static void turn_text(struct replay_report *r, const struct stored_turn *stored,
                      const struct replay_turn *f) {
    const struct turn_record *t = &stored->rec;
    print_recorder(r, t);
    printf("turn %" PRId64 ": %s", f->turn, replay_verdict_name(f->verdict));
    if (f->verdict == REPLAY_FAILED) {
        word(": ", f->why);
        putchar('\n');
        return;
    }
    if (f->verdict == REPLAY_EMPTY) {
        printf(", no answer (%s)\n",
               f->recorded_finish[0] ? f->recorded_finish : "it has not finished");
        return;
    }
    printf(", %" PRId64 " of %" PRId64 " tokens", f->n_compared, t->n_output);
    if (f->cut_short)
        printf(", stopped early in the record (%s)",
               f->recorded_finish[0] ? f->recorded_finish : "running");
    else if (strcmp(f->recorded_finish, f->finish))
        printf(", finish reason %s in the record, %s now", f->recorded_finish, f->finish);
    if (f->n_logprobs_differ)
        printf(", %" PRId64 " log-probabilities differ", f->n_logprobs_differ);
    if (t->numbers.paused_us)
        printf(", paused %.1f ms for others in the record", (double)t->numbers.paused_us / 1e3);
    putchar('\n');
    if (f->verdict != REPLAY_DIVERGED) return;
    print_divergence(r, stored, &f->first);
    if (f->token.index > f->first.index) print_divergence(r, stored, &f->token);
    print_differences(r, t);
}

void replay_report_turn(struct replay_report *r, const struct stored_turn *t,
                        const struct replay_turn *found) {
    r->n[found->verdict]++;
    if (!r->has_first && (found->verdict == REPLAY_DIVERGED || found->verdict == REPLAY_FAILED)) {
        r->has_first = true;
        r->first = *found;
    }
    (r->json ? turn_json : turn_text)(r, t, found);
}

// --- the end -----------------------------------------------------------------

static int end_json(struct replay_report *r, struct err *err) {
    struct json_writer *w = &r->out.w;
    json_close(w, ']');
    for (int i = 0; i <= REPLAY_FAILED; i++) json_put_int(w, replay_verdict_name(i), r->n[i]);
    if (r->has_first) {
        json_form(w, "first_divergence:{turn:%ld", r->first.turn);
        json_put_int(w, "index", r->first.first.index); // -1: the turn could not run
        json_put_int(w, "position", r->first.first.index < 0 ? -1 : r->first.first.position);
        json_close(w, '}');
    } else {
        json_put_null(w, "first_divergence");
    }
    json_open(w, "not_checked", '[');
    for (size_t i = 0; i < sizeof not_checked / sizeof *not_checked; i++)
        json_put_string(w, NULL, not_checked[i]);
    json_close(w, ']');
    return cli_json_end(&r->out, err);
}

static void end_text(const struct replay_report *r) {
    printf("%" PRId64 " equal, %" PRId64 " without an answer, %" PRId64 " diverged, %" PRId64
           " could not run\n",
           r->n[REPLAY_EQUAL], r->n[REPLAY_EMPTY], r->n[REPLAY_DIVERGED], r->n[REPLAY_FAILED]);
    if (r->has_first && r->first.verdict == REPLAY_DIVERGED)
        printf("first divergence: turn %" PRId64 ", token %" PRId64 ", position %" PRId64 "\n",
               r->first.turn, r->first.first.index, r->first.first.position);
    for (size_t i = 0; i < sizeof not_checked / sizeof *not_checked; i++)
        printf("%s%s\n", i ? "             " : "not checked: ", not_checked[i]);
}

int replay_report_end(struct replay_report *r, bool *equal, struct err *err) {
    *equal = !r->has_first;
    if (r->json) return end_json(r, err);
    end_text(r);
    return 0;
}

// --- what if -----------------------------------------------------------------

void what_if_report_begin(struct replay_report *r, const char *changes, int64_t from) {
    if (!r->json) {
        head_text(r);
        if (from >= 0)
            printf("what if, from turn %" PRId64 " on: ", from);
        else
            fputs("the current path has no turn; what if: ", stdout);
        terminal_line(stdout, changes, strlen(changes));
        return;
    }
    head_json(r);
    json_put_raw(&r->out.w, "what_if", changes, strlen(changes));
    json_form(&r->out.w, "from_turn:%+ld,turns:[", from);
}

static void put_answer(struct json_writer *w, const char *key, const struct replay_answer *a) {
    json_form(w, "%s:{text:%.*s", key, (int)a->text_len, a->text);
    json_put_ids(w, "ids", a->ids, a->n);
    json_put_floats(w, "logprobs", a->logprobs, a->n);
    json_form(w, "finish_reason:%s}", a->finish_reason[0] ? a->finish_reason : NULL);
}

static void pair_json(struct replay_report *r, const struct replay_pair *p) {
    const struct turn_record *t = record_of(r, p->turn);
    struct json_writer *w = &r->out.w;
    json_form(w, "{turn:%ld", p->turn);
    if (t->input_text)
        json_put_text(w, "input", t->input_text, t->input_text_len);
    else
        json_put_null(w, "input");
    json_form(w, "same:%hhd,same_tokens:%zu", p->same, p->n_same);
    put_answer(w, "recorded", &p->recorded);
    if (p->failed)
        json_put_null(w, "now");
    else
        put_answer(w, "now", &p->now);
    json_form(w, "error:%s}", p->failed);
}

static size_t column_width(void) {
    struct winsize size;
    size_t all = PIPE_COLUMNS;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
        all = size.ws_col;
    return (all - 3) / 2;
}

// Takes the next line of *text that fits, breaking at a space if possible: its bytes and its width
// on a terminal. Advances *text; false at the end.
static bool next_line(const char **text, const char *end, size_t width, struct replay_answer *line,
                      size_t *wide) {
    const char *p = *text, *space = NULL;
    size_t at_space = 0;
    *wide = 0;
    if (p == end) return false;
    while (p < end && *p != '\n') {
        bool valid;
        utf8proc_int32_t c = 0xfffd;
        size_t n = utf8_next(p, (size_t)(end - p), &valid);
        if (valid) utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)n, &c);
        size_t w = valid && c >= 0xa0 ? (size_t)utf8proc_charwidth(c) : 1;
        if (*wide + w > width) break;
        if (*p == ' ') space = p, at_space = *wide;
        *wide += w;
        p += n;
    }
    bool cut = p < end && *p != '\n';
    if (cut && space && space > *text) p = space, *wide = at_space;
    line->text = *text;
    line->text_len = (size_t)(p - *text);
    *text = p < end && (*p == '\n' || *p == ' ') ? p + 1 : p;
    return true;
}

// A tab counts as one column and is printed as one.
static void write_cell(const struct replay_answer *line, size_t wide, size_t width) {
    for (size_t i = 0, n; i < line->text_len; i += n + 1) {
        const char *tab = memchr(line->text + i, '\t', line->text_len - i);
        n = tab ? (size_t)(tab - line->text) - i : line->text_len - i;
        terminal_write(stdout, line->text + i, n);
        if (tab) putchar(' ');
    }
    for (; wide < width; wide++) putchar(' ');
}

static void side_by_side(const char *a, size_t a_len, const char *b, size_t b_len) {
    size_t width = column_width();
    const char *a_end = a + a_len, *b_end = b + b_len;
    for (;;) {
        struct replay_answer left = {.text = ""}, right = {.text = ""};
        size_t left_wide, right_wide;
        bool more = next_line(&a, a_end, width, &left, &left_wide);
        if (!next_line(&b, b_end, width, &right, &right_wide) && !more) return;
        write_cell(&left, left_wide, width);
        fputs(right.text_len ? " | " : " |", stdout);
        write_cell(&right, 0, 0);
        putchar('\n');
    }
}

static void pair_text(struct replay_report *r, const struct replay_pair *p) {
    const struct turn_record *t = record_of(r, p->turn);
    char left[96], right[96];
    printf("\n-- turn %" PRId64 ", recorded with seed %" PRIu64 ": %s\n> ", p->turn, t->seed,
           p->failed ? "could not run"
           : p->same ? "same answer"
                     : "different answer");
    if (t->input_text)
        terminal_line(stdout, t->input_text, t->input_text_len);
    else if (t->kind == INPUT_CONTINUE)
        puts("(continued)");
    else
        printf("(%zu token ids)\n", t->n_input_ids);
    if (p->failed) {
        terminal_line(stdout, p->failed, strlen(p->failed));
        return;
    }
    snprintf(left, sizeof left, "recorded: %zu tokens, %s", p->recorded.n,
             replay_or_unknown(p->recorded.finish_reason));
    snprintf(right, sizeof right, "now: %zu tokens, %s", p->now.n,
             replay_or_unknown(p->now.finish_reason));
    if (!p->same) {
        size_t used = strlen(right);
        snprintf(right + used, sizeof right - used, ", differs at token %zu", p->n_same);
    }
    side_by_side(left, strlen(left), right, strlen(right));
    side_by_side(p->recorded.text, p->recorded.text_len, p->now.text, p->now.text_len);
}

void what_if_report_pair(struct replay_report *r, const struct replay_pair *p) {
    r->n[p->failed ? REPLAY_FAILED : p->same ? REPLAY_EQUAL : REPLAY_DIVERGED]++;
    (r->json ? pair_json : pair_text)(r, p);
}

int what_if_report_end(struct replay_report *r, struct err *err) {
    if (r->json) {
        json_close(&r->out.w, ']');
        return cli_json_end(&r->out, err);
    }
    printf("\n%" PRId64 " answers are the same, %" PRId64 " others\n", r->n[REPLAY_EQUAL],
           r->n[REPLAY_DIVERGED]);
    return 0;
}
