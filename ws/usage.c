// Counts and limits as JSON. See usage.h.
#include "ws/usage.h"
#include "base/json_form.h"
#include <math.h>

#define REPLY_MAX_BYTES (16 << 20)

static bool is_rate(enum owner_limit which) {
    return which == OWNER_REQUESTS || which == OWNER_TOKENS;
}

// key NULL inside an array. json_put_double writes nine digits, and the bytes of a limit have more.
static void put(struct json_writer *w, const char *key, struct service *s, struct owner *o) {
    sessions_count_owner(s->sessions, o);
    json_form(w, "%s:{owner:%s,limits:{", key, o->name);
    for (int i = 0; i < N_OWNER_LIMITS; i++) {
        double limit = owner_limit_value(&o->limits, (enum owner_limit)i);
        json_open(w, owner_limit_name((enum owner_limit)i), '{');
        if (limit == 0)
            json_put_null(w, "limit");
        else if (limit == floor(limit))
            json_put_int(w, "limit", (int64_t)limit);
        else
            json_put_double(w, "limit", limit);
        json_form(w, "%s:%ld,refused:%ld}", is_rate((enum owner_limit)i) ? "total" : "used",
                  o->used[i], o->refused[i]);
    }
    json_form(w, "}}");
}

void usage_put_owners(struct json_writer *w, struct service *s, struct owner *o, bool all) {
    put(w, "usage", s, o);
    if (!all) return;
    json_open(w, "owners", '[');
    for (struct owner *each = s->net->owners.by_name; each; each = each->hh.next)
        put(w, NULL, s, each);
    json_close(w, ']');
}

void usage_handle(void *service, struct http *h) {
    const struct peer *p = http_peer(h);
    struct buf out;
    struct json_writer w;
    buf_init(&out, REPLY_MAX_BYTES);
    json_writer_init(&w, &out);
    json_open(&w, NULL, '{');
    usage_put_owners(&w, service, p->as.owner, p->as.admin);
    json_close(&w, '}');
    buf_addc(&out, '\n');
    http_reply_json(h, 200, &out);
}
