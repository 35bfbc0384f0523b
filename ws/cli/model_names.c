// See model_names.h.
#include "ws/cli/model_names.h"
#include "base/clock.h"
#include "base/config_parts.h"
#include "ws/cli/terminal.h"
#include "ws/model_settings.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH 24
#define REDRAW_US 100000
#define LINE_US 30000000 // between lines where stderr is no terminal
#define RATE_US 5000000  // the rate is a mean over this time or up to twice as long

bool model_name_is(const char *text) {
    return hub_name_is(text) && access(text, F_OK) < 0;
}

// --- the bar ---

struct bar {
    bool redraws;        // stderr is a terminal: one line, drawn again. Else a line now and then
    int64_t drawn_at_us; // 0: not yet
    int64_t since_us, since;   // the rate counts from `since` bytes received, at since_us
    int64_t before_us, before; // where the rate will count from next
};

// Bytes per second of the last five to ten seconds.
static double rate_of(struct bar *b, int64_t received, int64_t now_us) {
    if (now_us - b->before_us > RATE_US) {
        b->since_us = b->before_us;
        b->since = b->before;
        b->before_us = now_us;
        b->before = received;
    }
    const double seconds = (double)(now_us - b->since_us) / 1e6;
    return seconds > 0.5 ? (double)(received - b->since) / seconds : 0;
}

static void time_left(double seconds, char *out, size_t cap) {
    const long s = (long)(seconds + 0.5);
    if (s >= 86400)
        snprintf(out, cap, "more than a day");
    else if (s >= 3600)
        snprintf(out, cap, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, cap, "%ld:%02ld", s / 60, s % 60);
}

static void draw(struct bar *b, const struct pull_state *s, int64_t now_us) {
    const double rate = rate_of(b, s->received, now_us);
    const int full = s->total ? (int)((double)s->done / (double)s->total * BAR_WIDTH) : BAR_WIDTH;
    char left[32] = "-";
    if (rate > 0) time_left((double)(s->total - s->done) / rate, left, sizeof left);
    if (b->redraws)
        fprintf(stderr, "\r[%.*s%.*s] ", full, "########################", BAR_WIDTH - full,
                "........................");
    else
        fputs("parley: ", stderr);
    fprintf(stderr, "%.2f of %.2f GB, %.1f MB/s, %s left%s", (double)s->done / 1e9,
            (double)s->total / 1e9, rate / 1e6, left, b->redraws ? "\033[K" : "\n");
}

static void on_progress(void *ctx, const struct pull_state *s) {
    struct bar *b = ctx;
    const int64_t now_us = clock_mono_us(&clock_system);
    if (!b->drawn_at_us) {
        b->since_us = b->before_us = now_us;
        b->since = b->before = s->received;
        if (!b->redraws) b->drawn_at_us = now_us; // a short download needs no line
    }
    if (b->drawn_at_us && now_us - b->drawn_at_us < (b->redraws ? REDRAW_US : LINE_US)) return;
    b->drawn_at_us = now_us;
    draw(b, s, now_us);
}

static void erase(const struct bar *b) {
    if (b->redraws && b->drawn_at_us) fputs("\r\033[K", stderr);
}

// The sentence may quote the hub.
static void on_say(void *ctx, const char *sentence) {
    erase(ctx);
    fputs("parley: ", stderr);
    terminal_line(stderr, sentence, strlen(sentence));
}

int model_name_pull(const struct hub_place *p, const struct hub_name *n, enum hub_want want,
                    char out[PATH_MAX], struct err *err) {
    struct bar bar = {.redraws = isatty(STDERR_FILENO)};
    const struct pull_watch watch = {on_progress, on_say, &bar};
    int rc = pull_run(p, n, want, &watch, out, err);
    erase(&bar);
    return rc;
}

// --- names to paths ---

static int find(const char *text, enum hub_want want, struct hub_place *p, struct hub_name *n,
                char out[PATH_MAX], struct err *err) {
    TRY(hub_name_parse(n, text, err));
    TRY(hub_place_read(p, err));
    return pull_find(p, n, want, out, NULL, err);
}

// A GGUF file contains its tokenizer.
static enum hub_want want_of(enum hub_want want, const char *text) {
    return strchr(text, ':') ? HUB_MODEL : want;
}

int model_name_path(const char *text, enum hub_want want, char out[PATH_MAX], struct err *err) {
    struct hub_place p;
    struct hub_name n;
    struct err why = {0}, missing = {0};
    if (!model_name_is(text)) {
        if (snprintf(out, PATH_MAX, "%s", text) < PATH_MAX) return 0;
        return err_set(err, E_LIMIT, "the path %.300s... is too long", text);
    }
    int rc = find(text, want_of(want, text), &p, &n, out, &missing);
    if (rc != E_NOTFOUND) return rc < 0 ? err_set(err, rc, "%s", missing.text) : 0;
    // A folder's path with a mistake has a name's form, too.
    if (!p.offline)
        fprintf(stderr,
                "parley: there is no folder %.100s here, asking %.200s for a model of that name\n",
                text, p.endpoint);
    rc = model_name_pull(&p, &n, want_of(want, text), out, &why);
    if (rc == 0) return 0;
    if (p.offline)
        return err_set(
            err, rc,
            "there is no folder %.100s, the cache of the hub does not have it (%.200s), and %s",
            text, missing.text, why.text);
    return err_set(err, rc, "there is no folder %.100s, and %s", text, why.text);
}

// The model's path in the cache, else the text itself.
static int look(const char *text, enum hub_want want, char out[PATH_MAX], struct err *err) {
    struct hub_place p;
    struct hub_name n;
    if (model_name_is(text)) {
        int rc = find(text, want_of(want, text), &p, &n, out, err);
        if (rc != E_NOTFOUND) return rc;
    }
    if (snprintf(out, PATH_MAX, "%s", text) < PATH_MAX) return 0;
    return err_set(err, E_LIMIT, "the path %.300s... is too long", text);
}

typedef int resolver(const char *text, enum hub_want want, char out[PATH_MAX], struct err *err);

static int resolve_value(resolver *how, const struct config_key *key, enum hub_want want,
                         char **value, struct err *err) {
    char path[PATH_MAX];
    if (key->type != CONFIG_STRING || !key->choices || strcmp(key->choices, MODEL_VALUE) != 0)
        return 0;
    if (!model_name_is(*value)) return 0;
    if (strcmp(key->name, "tokenizer") == 0) want = HUB_TOKENIZER;
    TRY(how(*value, want, path, err));
    char *copy = strdup(path);
    if (!copy) return err_set(err, E_NOMEM, "no memory for the setting %s", key->name);
    free(*value);
    *value = copy;
    return 0;
}

static int resolve_table(resolver *how, const struct config_table *t, void *settings,
                         enum hub_want want, struct err *err) {
    for (int i = 0; i < t->n_keys; i++) {
        char **value = (char **)((char *)settings + t->keys[i].offset); // of a CONFIG_STRING
        TRY(resolve_value(how, &t->keys[i], want, value, err));
    }
    return 0;
}

static int resolve_parts(resolver *how, struct config_parts *parts, struct err *err) {
    for (struct config_part *p = parts->first; p; p = p->next)
        for (size_t i = 0; i < p->n_given; i++)
            TRY(resolve_value(how, p->given[i].key, HUB_MODEL, &p->given[i].value, err));
    return 0;
}

int model_names_resolve(const struct config_table *t, void *settings, enum hub_want want,
                        struct err *err) {
    return resolve_table(model_name_path, t, settings, want, err);
}

int model_names_look(const struct config_table *t, void *settings, struct err *err) {
    return resolve_table(look, t, settings, HUB_MODEL, err);
}

int model_names_resolve_parts(struct config_parts *parts, struct err *err) {
    return resolve_parts(model_name_path, parts, err);
}

int model_names_look_parts(struct config_parts *parts, struct err *err) {
    return resolve_parts(look, parts, err);
}
