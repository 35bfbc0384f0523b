// Starts and stops the parts of the server. See serve.h.
#include "ws/serve.h"
#include "base/log.h"
#include "base/thread_priority.h"
#include "sessions/matching/volatile_text.h"
#include "sessions/store/look.h"
#include "ws/control.h"
#include "ws/hosting.h"
#include "ws/notify.h"
#include "ws/opening.h"
#include "ws/server.h"
#include "ws/version.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct serving {
    const struct serve_config *config;
    struct metrics *metrics;
    struct server *server;
    struct instances instances;
    struct volatile_text *volatile_text; // NULL: none
    struct sessions *sessions;
    struct hosting *hosting;
    struct control *control;
};

static int open_instances(struct serving *v, struct err *err) {
    v->instances.metrics = v->metrics;
    v->instances.wake = service_wake;
    v->instances.wake_ctx = server_service(v->server);
    v->instances.shows_progress = isatty(STDERR_FILENO);
    return opening_run(&v->instances, err);
}

static int open_sessions(struct serving *v, struct err *err) {
    const struct serve_config *c = v->config;
    struct sessions_callbacks callbacks;
    char build[VERSION_BUILD_MAX];
    version_build(build);
    struct sessions_options o = {
        .db_path = c->db,
        .build = build,
        .max_sequence_idle_microseconds = c->max_sequence_idle_microseconds,
        .max_queued_turns = (int32_t)c->max_queued_turns_per_session,
        .max_resident_sessions = (int32_t)c->max_resident_sessions,
        .max_session_age = c->max_session_age,
        .max_sessions = c->max_sessions,
        .server_name = c->server_name,
        .moved_turn_us = (int64_t)(c->moved_turn_timeout * 1e6),
        .commit_interval_us = c->commit_interval_us,
        .durable = (enum sessions_durable)c->durable,
        .run_ahead = c->run_ahead,
        .metrics = v->metrics,
        .owners = &server_service(v->server)->net->owners,
        .workers = server_service(v->server)->net->workers,
        .wake = service_wake,
        .wake_ctx = server_service(v->server),
    };
    followers_callbacks(&server_service(v->server)->followers, &callbacks);
    TRY(sessions_open(&v->sessions, &o, &callbacks, err));
    int rc = instances_add(&v->instances, v->sessions, err);
    if (rc < 0) sessions_close(v->sessions);
    return rc;
}

static void say_hello(const struct serving *v) {
    char url[256];
    char names[PLACEMENT_NAMES_MAX];
    const struct placement *p = sessions_placement(v->sessions);
    bool one = !p->models->next;
    printf("Parley serves %s at %s (Ctrl-C to stop)\n",
           one ? p->models->name : placement_names(p, names),
           server_url(v->server, url, sizeof(url)));
    int grpc_port = server_grpc_port(v->server);
    if (grpc_port) printf("gRPC at port %d\n", grpc_port);
    fflush(stdout);
    notify_send("READY=1");
    log_info("server.ready", "url=%s model=%s n_params=%lld instances=%zu", url, p->models->name,
             (long long)p->models->info->n_params, instances_n(&v->instances));
}

static int open_control(struct serving *v, struct err *err) {
    struct service *s = server_service(v->server);
    TRY(hosting_open(&v->hosting, &v->instances, s, err));
    return control_open(&v->control, v->hosting, s, err);
}

static int run(struct serving *v, struct err *err) {
    TRY(open_control(v, err));
    TRY(server_listen(v->server, v->sessions, err));
    if (v->config->run_ahead && thread_run_ahead() < 0)
        log_debug("server.ordinary_priority", "reason=denied");
    say_hello(v);
    int rc = server_run(v->server);
    if (rc == E_DEVICE)
        return err_set(err, rc,
                       "the %s failed; all sessions and turns are stored; start Parley again",
                       v->config->model.tensor_parallel * v->config->model.pipeline_parallel > 1
                           ? "instance's ranks"
                           : "GPU");
    if (rc == 0) return 0;
    return err_set(err, E_CANCELLED,
                   "stopped by a second signal; %d running turns are recorded as interrupted",
                   sessions_n_running(v->sessions));
}

// sessions_open() refuses a second server too, but a model loads for minutes, and on a GPU that the
// first server fills it fails with another error. A file that cannot be looked at is named there.
static int refuse_second_server(const char *db, struct err *err) {
    struct store_look look;
    if (strcmp(db, ":memory:") == 0 || store_look(&look, db, NULL) < 0 || !look.server_pid)
        return 0;
    return err_set(err, E_BUSY, "%s: in use by another Parley (process %ld)", db, look.server_pid);
}

int serve_run(const struct serve_config *c, struct err *err) {
    static struct serving v; // static: what a failed device leaves unfreed stays reachable
    int rc;
    v = (struct serving){.config = c};
    TRY(serve_config_check(c, err));
    TRY(refuse_second_server(c->db, err));
    log_set_level((enum log_level)c->log_level);
    TRY(instances_plan(&v.instances, c, err));
    rc = volatile_text_new(&v.volatile_text, c->volatile_patterns, err);
    if (rc < 0) {
        instances_release(&v.instances);
        return rc;
    }
    v.instances.volatile_text = v.volatile_text;
    v.metrics = metrics_new();
    if (!v.metrics) {
        instances_release(&v.instances);
        volatile_text_free(v.volatile_text);
        return err_set(err, E_NOMEM, "out of memory for metrics");
    }
    TRY_GOTO(no_server, server_open(&v.server, c, v.metrics, err));
    TRY_GOTO(closed, open_instances(&v, err));
    TRY_GOTO(closed, open_sessions(&v, err));
    rc = run(&v, err);
    control_close(v.control);
    hosting_close(v.hosting);
    server_stop(v.server);
    if (rc == 0) instances_save_at_stop(&v.instances); // a second signal skips the snapshots
    sessions_close(v.sessions);
    // Freeing the memory of a failed GPU may crash, so the process exits without it.
    if (rc == E_DEVICE) return rc;
closed:
    instances_release(&v.instances);
    server_close(v.server);
no_server:
    instances_release(&v.instances);
    metrics_free(v.metrics);
    volatile_text_free(v.volatile_text);
    return rc;
}
