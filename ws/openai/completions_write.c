// See completions_write.h.
#include "ws/openai/completions_write.h"
#include "base/json_form.h"
#include "base/utf8.h"
#include <math.h>
#include <string.h>

#define LOGPROBS_MAX_BYTES (64 << 20)
#define UNLIKELY (-9999.0) // JSON has no infinity

// --- log-probabilities ---

void completions_logprobs_init(struct completions_logprobs *l, size_t n_chars) {
    *l = (struct completions_logprobs){.n_chars = n_chars};
    buf_init(&l->tokens, LOGPROBS_MAX_BYTES);
    buf_init(&l->logprobs, LOGPROBS_MAX_BYTES);
    buf_init(&l->tops, LOGPROBS_MAX_BYTES);
    buf_init(&l->offsets, LOGPROBS_MAX_BYTES);
}

void completions_logprobs_release(struct completions_logprobs *l) {
    buf_release(&l->tokens);
    buf_release(&l->logprobs);
    buf_release(&l->tops);
    buf_release(&l->offsets);
}

void completions_logprobs_clear(struct completions_logprobs *l) {
    buf_reset(&l->tokens);
    buf_reset(&l->logprobs);
    buf_reset(&l->tops);
    buf_reset(&l->offsets);
    l->n = 0;
}

// A token as a string: a value, or (colon) a member's name. A token without text is named by its id, as vLLM does, so
// that names differ; without a tokenizer, no token has text.
static void put_token(struct buf *out, const struct engine *e, int32_t id, bool colon) {
    size_t len = 0;
    const char *s = engine_token_bytes(e, id, &len);
    buf_addc(out, '"');
    if (!s) {
        buf_addf(out, "token_id:%d", id);
    } else if (utf8_valid(s, len)) {
        json_escape(out, s, len);
    } else {
        buf_addz(out, "bytes:");
        for (size_t i = 0; i < len; i++) buf_addf(out, "\\\\x%02x", (unsigned char)s[i]);
    }
    buf_addz(out, colon ? "\":" : "\"");
}

size_t completions_chars(const char *s, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

static void put_logprob(struct buf *out, float logprob) {
    buf_addf(out, "%.9g", isfinite(logprob) ? (double)logprob : UNLIKELY);
}

// The token itself is always among them.
static void put_tops(struct buf *out, const struct engine *e, int32_t id, float logprob,
                     const struct engine_alternative *alternatives, int32_t n) {
    bool drawn = false;
    buf_addc(out, '{');
    while (n > 0 && alternatives[n - 1].id < 0) n--;
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) buf_addc(out, ',');
        put_token(out, e, alternatives[i].id, true);
        put_logprob(out, alternatives[i].logprob);
        drawn |= alternatives[i].id == id;
    }
    if (!drawn) {
        if (n > 0) buf_addc(out, ',');
        put_token(out, e, id, true);
        put_logprob(out, logprob);
    }
    buf_addc(out, '}');
}

void completions_logprobs_add(struct completions_logprobs *l, const struct engine *e, int32_t id,
                              float logprob, const struct engine_alternative *alternatives,
                              int32_t n_alternatives) {
    const char *comma = l->n++ > 0 ? "," : "";
    size_t len = 0;
    const char *bytes = engine_token_bytes(e, id, &len);
    buf_addz(&l->tokens, comma);
    put_token(&l->tokens, e, id, false);
    buf_addz(&l->logprobs, comma);
    put_logprob(&l->logprobs, logprob);
    buf_addz(&l->tops, comma);
    put_tops(&l->tops, e, id, logprob, alternatives, n_alternatives);
    buf_addf(&l->offsets, "%s%zu", comma, l->n_chars);
    l->n_chars += bytes ? completions_chars(bytes, len) : 0;
}

// The first token: no tokens precede it, so it has no log-probability.
static void add_null(struct completions_logprobs *l, const struct engine *e, int32_t id) {
    const char *comma = l->n++ > 0 ? "," : "";
    buf_addz(&l->tokens, comma);
    put_token(&l->tokens, e, id, false);
    buf_addf(&l->logprobs, "%snull", comma);
    buf_addf(&l->tops, "%snull", comma);
    buf_addf(&l->offsets, "%s%zu", comma, l->n_chars);
}

// How much of the text this token covers. Tokenizers put a space before the first word, and tokens without text
// before that.
static size_t token_share(const char *bytes, size_t n, const char *text, size_t len) {
    size_t space = n > 0 && len > 0 && bytes[0] == ' ' && text[0] != ' ';
    if (n - space > len || memcmp(bytes + space, text, n - space) != 0) return 0;
    return n - space;
}

void completions_logprobs_add_prompt(struct completions_logprobs *l, const struct engine *e,
                                     const struct engine_scores *s, const char *text, size_t len) {
    for (int64_t i = 0; i < s->n; i++) {
        size_t n = 0, n_chars = l->n_chars;
        const char *bytes = engine_token_bytes(e, s->ids[i], &n);
        size_t share = bytes ? token_share(bytes, n, text, len) : 0;
        int32_t n_top = s->n_alternatives;
        if (isnan(s->logprobs[i]))
            add_null(l, e, s->ids[i]);
        else
            completions_logprobs_add(l, e, s->ids[i], s->logprobs[i], s->alternatives + i * n_top,
                                     n_top);
        l->n_chars = n_chars + completions_chars(text, share);
        text += share;
        len -= share;
    }
}

static void put_part(struct json_writer *w, const char *key, const struct buf *before,
                     const struct buf *part) {
    json_open(w, key, '[');
    if (before) buf_add(w->buf, buf_z(before), before->len);
    if (before && before->len && part->len) buf_addc(w->buf, ',');
    buf_add(w->buf, buf_z(part), part->len);
    if (part->error && !w->buf->error) w->buf->error = part->error;
    if (before && before->error && !w->buf->error) w->buf->error = before->error;
    json_close(w, ']');
}

static void put_logprobs(struct json_writer *w, const struct completions_logprobs *p,
                         const struct completions_logprobs *l) {
    if (!l) {
        json_put_null(w, "logprobs");
        return;
    }
    json_open(w, "logprobs", '{');
    put_part(w, "tokens", p ? &p->tokens : NULL, &l->tokens);
    put_part(w, "token_logprobs", p ? &p->logprobs : NULL, &l->logprobs);
    put_part(w, "top_logprobs", p ? &p->tops : NULL, &l->tops);
    put_part(w, "text_offset", p ? &p->offsets : NULL, &l->offsets);
    json_close(w, '}');
}

// --- answers ---

const char *completions_finish(const char *finish_reason) {
    return finish_reason && strcmp(finish_reason, "length") == 0 ? "length" : "stop";
}

void completions_write_choice(struct json_writer *w, const struct completions_choice *c) {
    json_form(w, "{text:%.*s,index:%zu", (int)c->len, c->text, c->index);
    put_logprobs(w, c->prompt, c->logprobs);
    json_form(w, "finish_reason:%s}", c->finish_reason);
}

static void put_usage(struct json_writer *w, const struct completions_usage *u) {
    answer_usage_open(w, u->prompt_tokens, u->cached_tokens, u->completion_tokens);
    json_close(w, '}');
}

void completions_write_begin(struct json_writer *w, const struct answer_head *h) {
    answer_head_open(w, h, "text_completion");
    json_open(w, "choices", '[');
}

void completions_write_end(struct json_writer *w, const struct completions_usage *u) {
    json_close(w, ']');
    if (u) put_usage(w, u);
    json_close(w, '}');
}

static void begin_event(struct buf *out, struct json_writer *w) {
    buf_addz(out, "data: ");
    json_writer_init(w, out);
}

void completions_write_chunk(struct buf *out, const struct answer_head *h,
                             const struct completions_choice *c) {
    struct json_writer w;
    begin_event(out, &w);
    completions_write_begin(&w, h);
    completions_write_choice(&w, c);
    json_close(&w, ']');
    if (h->include_usage) json_put_null(&w, "usage");
    json_close(&w, '}');
    buf_addz(out, "\n\n");
}

void completions_write_last(struct buf *out, const struct answer_head *h,
                            const struct completions_usage *u) {
    struct json_writer w;
    if (h->include_usage) {
        begin_event(out, &w);
        completions_write_begin(&w, h);
        completions_write_end(&w, u);
        buf_addz(out, "\n\n");
    }
    buf_addz(out, "data: [DONE]\n\n");
}
