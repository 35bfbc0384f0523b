// The session service on the loop. See service.h.
#include "ws/service.h"
#include <stddef.h>

#define AWAKE_US 300 // without a token, though the next one is near

void service_wake(void *service) {
    bell_ring(&((struct service *)service)->bell);
}
static void on_wake(void *ctx) {
    ((struct service *)ctx)->dirty = true;
}
static void on_poll_timer(uv_timer_t *handle) {
    ((struct service *)handle->data)->dirty = true;
}

void service_poll_soon(struct service *s) {
    s->dirty = true;
}

// --- for followers ---

struct request service_request(const struct follower *f, enum request_kind kind, const char *owner,
                               const char *session) {
    struct request r;
    request_init(&r, kind);
    r.client = f->client;
    r.owner = owner;
    r.session = session;
    return r;
}

void service_submit(struct service *s, const struct request *r) {
    sessions_submit(s->sessions, r);
    service_poll_soon(s);
}

void service_delete_session(struct service *s, const char *owner, const char *session) {
    struct request r;
    request_init(&r, REQUEST_CLOSE);
    r.owner = owner;
    r.session = session;
    r.close.delete_it = true;
    service_submit(s, &r);
}

static struct service_job *job_of(struct work *w) {
    return (struct service_job *)((char *)w - offsetof(struct service_job, work));
}
static void run_job(struct work *w) {
    job_of(w)->run(job_of(w)->follower);
}
static void job_done(struct work *w) {
    job_of(w)->done(job_of(w)->follower);
}

int service_work(struct service *s, struct follower *f, const char *owner, uint64_t lane,
                 struct service_job *job) {
    const struct owner *o = owners_get(&s->net->owners, owner);
    job->follower = f;
    job->work = (struct work){
        .group = o ? o->number : 0, .lane = lane | f->client, .run = run_job, .done = job_done};
    return workers_submit(s->net->workers, &job->work);
}

void service_push(struct service *s, struct follower *f) {
    follower_push_later(&s->followers, f);
}

void service_drop_follower(struct service *s, struct follower *f) {
    sessions_client_gone(s->sessions, f->client);
    service_poll_soon(s);
    followers_remove(&s->followers, f);
}

// --- polling ---

static bool poll_is_due(const struct service *s) {
    return s->dirty || (s->sessions && sessions_touched(s->sessions));
}

static void poll_sessions(struct service *s) {
    if (poll_is_due(s) && s->sessions) {
        s->dirty = false;
        s->n_polls++;
        int64_t next_us = sessions_poll(s->sessions);
        if (s->polled) s->polled(s);
        if (s->dirty) next_us = 0; // a callback made new work
        if (next_us < 0)
            uv_timer_stop(&s->poll_timer);
        else
            uv_timer_start(&s->poll_timer, on_poll_timer, (uint64_t)((next_us + 999) / 1000), 0);
    }
    if (followers_push(&s->followers)) s->awake_until_us = net_now_us() + AWAKE_US;
    if (poll_is_due(s) || s->followers.n_fresh) uv_timer_start(&s->poll_timer, on_poll_timer, 0, 0);
}

static void on_awake(uv_idle_t *handle) {}

static bool token_is_near(struct sessions *ss) {
    const struct instance *i = sessions_placement(ss)->instances;
    while (i && !engine_token_is_near(i->engine)) i = i->next;
    return i;
}

// A step of many sessions draws their tokens one after another. Sleeping between two of them costs
// two changes of thread each, and worse: the core that was slept on goes to sleep as well, and a
// virtual one takes up to some milliseconds to come back. So while the next token is near the loop
// looks round without waiting. Not for long: the engine may have been held up.
static void stay_awake(struct service *s) {
    bool active = uv_is_active((uv_handle_t *)&s->awake);
    bool stay = s->awake_until_us && s->sessions && net_now_us() < s->awake_until_us &&
                token_is_near(s->sessions);
    if (!stay) s->awake_until_us = 0;
    if (stay && !active) uv_idle_start(&s->awake, on_awake);
    if (!stay && active) uv_idle_stop(&s->awake);
}

static void on_prepare(uv_prepare_t *handle) {
    poll_sessions(handle->data);
    stay_awake(handle->data);
}

static void call_later(struct follower *f, int64_t now_us) {
    if (f->ops->later) f->ops->later(f, now_us);
}
static void on_later(uv_timer_t *handle) {
    followers_each(&((struct service *)handle->data)->followers, call_later, net_now_us());
}

void service_later(struct service *s, int64_t ms) {
    bool active = uv_is_active((uv_handle_t *)&s->later_timer);
    if (!active || uv_timer_get_due_in(&s->later_timer) > (uint64_t)ms)
        uv_timer_start(&s->later_timer, on_later, (uint64_t)ms, 0);
}

// --- metrics ---

static double uptime(void *ctx) {
    return (double)(net_now_us() - ((struct service *)ctx)->start_us) / 1e6;
}
static double resident_bytes(void *ctx) {
    size_t bytes = 0;
    uv_resident_set_memory(&bytes);
    return (double)bytes;
}
static double processor_seconds(void *ctx) {
    uv_rusage_t use = {0};
    uv_getrusage(&use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}
static double n_followers(void *ctx) {
    return (double)((struct service *)ctx)->followers.n;
}
static double n_waiting(void *ctx) {
    return (double)((struct service *)ctx)->waiting_bytes;
}
static double n_turns(void *ctx) {
    struct service *s = ctx;
    return s->sessions ? sessions_n_running(s->sessions) : 0;
}

static const char *const budget_names[N_BUDGETS] = {
    [BUDGET_CONNECTION] = "connection_bytes",
    [BUDGET_OWNER] = "owner_bytes",
    [BUDGET_SERVER] = "server_bytes",
    [BUDGET_CHANGES] = "owner_changes",
};

static void register_metrics(struct service *s, struct metrics *m) {
    static const double token_bounds[] = {50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3,
                                          5e-3,  10e-3,  50e-3,  250e-3, 1};
    struct service_metrics *x = &s->metrics;
    metrics_gauge_fn(m, "parley_uptime_seconds", "Time since the start", NULL, uptime, s);
    // These two have the names that every program's have.
    metrics_gauge_fn(m, "process_resident_memory_bytes", "Resident memory", NULL, resident_bytes,
                     s);
    metrics_gauge_fn(m, "process_cpu_seconds_total", "User and system processor time", NULL,
                     processor_seconds, s);
    metrics_gauge_fn(m, "parley_turns", "Turns running or queued", NULL, n_turns, s);
    metrics_gauge_fn(m, "parley_followers", "WebSockets and HTTP requests that follow sessions",
                     NULL, n_followers, s);
    metrics_gauge_fn(m, "parley_waiting_bytes",
                     "Bytes of answers that wait for the clients' sockets", NULL, n_waiting, s);
    x->messages_in =
        metrics_counter(m, "parley_messages_in_total", "WebSocket messages received", NULL);
    x->frames_out = metrics_counter(m, "parley_frames_out_total", "WebSocket messages sent", NULL);
    x->errors_out =
        metrics_counter(m, "parley_error_messages_total", "Error messages sent to clients", NULL);
    x->slow_readers = metrics_counter(m, "parley_slow_readers_total",
                                      "Connections cut off for reading too slowly", NULL);
    x->rate_limited =
        metrics_counter(m, "parley_rate_limited_total", "Messages refused by the rate limit", NULL);
    for (int i = 0; i < N_BUDGETS; i++)
        x->over_budget[i] = metrics_counter_of(
            m, "parley_over_budget_total",
            "Times that a client was read no further for the bytes that wait for it, for its "
            "owner or for all; owner_changes: that a session.changed was put off",
            "budget", budget_names[i]);
    x->token_to_socket =
        metrics_histogram(m, "parley_token_to_socket_seconds",
                          "From the draw of a token to the write of the delta that tells it", NULL,
                          token_bounds, (int)(sizeof(token_bounds) / sizeof(token_bounds[0])));
}

void service_count_token(struct service *s, int64_t drawn_us) {
    if (drawn_us)
        metric_observe(s->metrics.token_to_socket, (double)(net_now_us() - drawn_us) / 1e6);
}

// --- life ---

int service_init(struct service *s, struct net *net, struct metrics *registry, struct err *err) {
    s->net = net;
    s->config = net->config;
    s->registry = registry;
    s->start_us = net_now_us();
    metrics_history_init(&s->history);
    uv_timer_init(&net->loop, &s->poll_timer);
    uv_timer_init(&net->loop, &s->later_timer);
    uv_prepare_init(&net->loop, &s->prepare);
    uv_idle_init(&net->loop, &s->awake);
    reclaim_init(&s->reclaim, net, &s->n_polls);
    s->poll_timer.data = s->later_timer.data = s->prepare.data = s->awake.data = s;
    TRY(bell_open(&s->bell, &net->loop, on_wake, s, err));
    register_metrics(s, registry);
    return 0;
}

const struct served_model *service_hold_model(const struct service *s, const char *name) {
    return placement_hold(sessions_placement(s->sessions), name);
}

const struct served_model *service_hold_asked_model(const struct service *s, const char *name,
                                                    struct err *err) {
    return placement_hold_asked(sessions_placement(s->sessions), name, err);
}

// JSON of prose has 4 to 6 bytes for each token; of code, with its escapes, tool calls and ids, more.
#define JSON_BYTES_PER_TOKEN 16
#define DEFAULT_LONGEST_CONVERSATION ((int64_t)64 << 20)

size_t service_longest_conversation(void *service, const char *path) {
    const struct service *s = service;
    const struct serve_config *c = s->config;
    int64_t bytes = c->max_conversation_bytes;
    const struct served_model *m = sessions_placement(s->sessions)->models;
    for (; m && !c->max_conversation_bytes; m = m->next) {
        int64_t len = m->session_len ? m->session_len : m->info->max_session_len;
        int64_t most = DEFAULT_LONGEST_CONVERSATION / JSON_BYTES_PER_TOKEN;
        if (len > most) len = most;
        if (len * JSON_BYTES_PER_TOKEN > bytes) bytes = len * JSON_BYTES_PER_TOKEN;
    }
    return (size_t)(bytes > c->max_message_bytes ? bytes : c->max_message_bytes);
}

void service_start(struct service *s, struct sessions *sessions) {
    s->sessions = sessions;
    s->dirty = true;
    uv_prepare_start(&s->prepare, on_prepare);
    reclaim_start(&s->reclaim);
}

void service_stop(struct service *s) {
    uv_prepare_stop(&s->prepare);
    uv_idle_stop(&s->awake);
}

void service_release(struct service *s) {
    bell_close(&s->bell);
    followers_release(&s->followers);
    metrics_history_release(&s->history);
}
