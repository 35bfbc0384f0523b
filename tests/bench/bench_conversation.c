// What a server computes of a conversation that is sent again whole, before its turn starts: JSON, the chain by which its
// session is found (sessions/matching/told.h), the template. Least processor time of a run of requests, in microseconds.
//   make bench-conversation [ARGS="DIR [TURNS [REQUESTS]]"]
#include "base/json.h"
#include "engine/text/chat_template.h"
#include "sessions/matching/told.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BODY_BYTES (1u << 20)
#define RUNS 5

enum step { PARSE, CHAIN, RENDER, HASH, DROP, N_STEPS };
static const char *const names[N_STEPS] = {"JSON", "chain", "template", "hash of the text",
                                           "freeing"};

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void write_body(struct buf *b, int turns) {
    buf_init(b, BODY_BYTES);
    buf_addz(b, "{\"model\":\"m\",\"messages\":[");
    for (int i = 1; i <= turns; i++) {
        buf_addf(b, "%s{\"role\":\"user\",\"content\":\"Question %d\"}", i > 1 ? "," : "", i);
        if (i < turns) buf_addz(b, ",{\"role\":\"assistant\",\"content\":\"Yes, that is so.\"}");
    }
    buf_addz(b, "]}");
}

static struct hash128 chain_of(const cJSON *messages) {
    struct hash128 chain = told_start("local");
    char digits[TOLD_DIGITS + 1];
    const cJSON *m;
    cJSON_ArrayForEach(m, messages) {
        told_add(&chain, m);
        told_digits(chain, digits);
    }
    return chain;
}

// One request. Adds to at[step]. E_* with *err set.
static int request(const struct chat_template *c, const struct buf *body, double at[N_STEPS],
                   struct err *err) {
    struct chat_rendering *r = NULL;
    double times[N_STEPS + 1] = {microseconds()};
    cJSON *json = json_parse(body->data, body->len, &json_limits_message, err);
    if (!json) return err->code;
    times[CHAIN] = microseconds();
    struct chat_conversation whole = {.messages = json_member(json, "messages")};
    struct told_of of = {.chain = chain_of(whole.messages)};
    times[RENDER] = microseconds();
    int rc = chat_rendering_new(c, &whole, &r, err);
    times[HASH] = microseconds();
    if (rc == 0) of.text = chat_rendering_text(r, &of.len);
    struct told *told = rc == 0 ? told_new(&of) : NULL;
    times[DROP] = microseconds();
    told_free(told);
    chat_rendering_free(r);
    cJSON_Delete(json);
    times[N_STEPS] = microseconds();
    for (int i = 0; i < N_STEPS; i++) at[i] += times[i + 1] - times[i];
    return rc;
}

int main(int argc, char **argv) {
    const char *dir = argc > 1 ? argv[1] : "configs/demo-model";
    int turns = argc > 2 ? atoi(argv[2]) : 150, requests = argc > 3 ? atoi(argv[3]) : 500;
    struct tokenizer *t = NULL;
    struct chat_template *c = NULL;
    struct err err = {0};
    struct buf body;
    double least[N_STEPS] = {0}, total = 0;
    write_body(&body, turns);
    int rc = tokenizer_open(&t, dir, &err);
    if (rc == 0) rc = chat_template_open(&c, dir, NULL, t, &err);
    for (int run = 0; run < RUNS && rc == 0; run++) {
        double at[N_STEPS] = {0};
        for (int i = 0; i < requests && rc == 0; i++) rc = request(c, &body, at, &err);
        for (int i = 0; i < N_STEPS; i++)
            if (run == 0 || at[i] / requests < least[i]) least[i] = at[i] / requests;
    }
    printf("%d turns, %zu bytes of JSON\n", turns, body.len);
    for (int i = 0; i < N_STEPS && rc == 0; i++)
        printf("%-18s %8.1f us\n", names[i], least[i]), total += least[i];
    if (rc < 0)
        printf("%s\n", err.text);
    else
        printf("%-18s %8.1f us\n", "all", total);
    buf_release(&body);
    chat_template_close(c);
    tokenizer_close(t);
    return rc < 0;
}
