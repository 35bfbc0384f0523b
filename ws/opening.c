// See opening.h.
#include "ws/opening.h"
#include "base/err.h"
#include "base/log.h"
#include "base/thread.h"
#include "ws/progress.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <utlist.h>

enum state { WAITS, OPENS, OPENED, FAILED, GIVEN_UP };

struct openings;
struct opening { // of one instance
    struct openings *all;
    struct hosted *hosted;
    enum state state; // under the lock
    bool is_process, has_thread;
    bool gpus[ENGINE_MAX_GPUS];
    int n_gpus;
    pthread_t thread;
    struct progress_part loading, measuring;
    struct err err;
};
struct openings {
    const struct instances *instances;
    struct opening *list; // (n) in the order of the instances
    size_t n;
    int32_t n_on_cpu; // processes that share the host's free memory
    struct progress loading, measuring;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool failed; // one instance failed: the others are given up
};

static bool still_wanted(void *ctx) {
    return !atomic_load(&((struct openings *)ctx)->failed);
}

// --- one instance ---

static int open_one(struct opening *x) {
    struct openings *all = x->all;
    struct instance_opening o = {.n_beside = x->is_process && !x->n_gpus ? all->n_on_cpu : 1,
                                 .wanted = still_wanted,
                                 .wanted_ctx = all};
    if (all->instances->shows_progress) {
        o.loading = &x->loading;
        o.measuring = &x->measuring;
    }
    return instances_open_one(all->instances, x->hosted, &o, &x->err);
}

static void *open_and_report(void *arg) {
    struct opening *x = arg;
    struct openings *all = x->all;
    int rc = open_one(x);
    pthread_mutex_lock(&all->lock);
    bool given_up = rc == E_CLOSED && atomic_load(&all->failed);
    x->state = rc == 0 ? OPENED : given_up ? GIVEN_UP : FAILED;
    if (x->state == FAILED) atomic_store(&all->failed, true);
    pthread_cond_signal(&all->changed);
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

static void *thread_main(void *arg) {
    pthread_setname_np(pthread_self(), "parley-load");
    return open_and_report(arg);
}

static int start_thread(struct opening *x) {
    int rc = thread_start(&x->thread, thread_main, x);
    x->has_thread = rc == 0;
    return rc;
}

// Called with the lock held, and returns with the lock held. Releases the lock while it opens an instance on this
// thread.
static void begin(struct opening *x) {
    struct openings *all = x->all;
    x->state = OPENS;
    if (x->hosted->name[0]) log_info("instance.loading", "instance=%s", x->hosted->name);
    if (x->is_process && start_thread(x) == 0) return;
    pthread_mutex_unlock(&all->lock);
    open_and_report(x); // a process too if no thread could start: the start then takes longer
    pthread_mutex_lock(&all->lock);
}

// --- their order ---

static bool share_a_gpu(const struct opening *a, const struct opening *b) {
    for (int i = 0; i < ENGINE_MAX_GPUS; i++)
        if (a->gpus[i] && b->gpus[i]) return true;
    return false;
}

static bool is_pending(const struct opening *x) {
    return x->state == WAITS || x->state == OPENS;
}

static bool may_begin(const struct opening *x) {
    if (x->state != WAITS) return false;
    for (const struct opening *before = x->all->list; before < x; before++)
        if (is_pending(before) && share_a_gpu(before, x)) return false;
    return true;
}

// Instances with processes of their own first: any other instance blocks this thread while it opens. NULL: none may
// begin now.
static struct opening *next(const struct openings *all) {
    struct opening *found = NULL;
    if (atomic_load(&all->failed)) return NULL;
    for (struct opening *x = all->list; x < all->list + all->n; x++) {
        if (!may_begin(x)) continue;
        if (x->is_process) return x;
        if (!found) found = x;
    }
    return found;
}

static bool any_opens(const struct openings *all) {
    for (size_t i = 0; i < all->n; i++)
        if (all->list[i].state == OPENS) return true;
    return false;
}

static void open_all(struct openings *all) {
    struct opening *x;
    pthread_mutex_lock(&all->lock);
    while ((x = next(all)) || any_opens(all)) {
        if (x)
            begin(x);
        else
            pthread_cond_wait(&all->changed, &all->lock);
    }
    pthread_mutex_unlock(&all->lock);
    for (size_t i = 0; i < all->n; i++)
        if (all->list[i].has_thread) pthread_join(all->list[i].thread, NULL);
}

// --- all of them ---

static void prepare(struct openings *all) {
    struct opening *x = all->list;
    struct hosted *h;
    DL_FOREACH(all->instances->list, h) {
        struct engine_options o;
        model_settings_engine(&h->config.model, &o);
        x->all = all;
        x->hosted = h;
        x->is_process = h->config.engine_process == SERVE_PROCESS_ON;
        if (all->n > 1) x->n_gpus = engine_gpus(&o, x->gpus); // this asks the driver
        x->loading.whole = &all->loading;
        x->measuring.whole = &all->measuring;
        progress_join(&x->loading);
        if (x->is_process && !x->n_gpus) all->n_on_cpu++;
        x++;
    }
}

// The first error of the list; the others are logged.
static int result(const struct openings *all, struct err *err) {
    int rc = 0;
    for (const struct opening *x = all->list; x < all->list + all->n; x++) {
        char quoted[1200];
        if (x->state == FAILED && rc < 0)
            log_error("instance.load", "instance=%s error=%s", x->hosted->name,
                      log_quote(quoted, sizeof quoted, x->err.text));
        if (x->state == FAILED && rc == 0) rc = err_set(err, x->err.code, "%s", x->err.text);
    }
    return rc;
}

int opening_run(struct instances *v, struct err *err) {
    bool alone = instances_n(v) == 1;
    struct openings all = {.instances = v, .n = instances_n(v)};
    all.list = calloc(all.n, sizeof *all.list);
    if (!all.list) return err_set(err, E_NOMEM, "no memory for instances");
    pthread_mutex_init(&all.lock, NULL);
    pthread_cond_init(&all.changed, NULL);
    progress_open(&all.loading, alone ? "Loading the model" : "Loading the models", NULL);
    progress_open(&all.measuring, alone ? "Measuring this GPU" : "Measuring the GPUs",
                  &all.loading);
    prepare(&all);
    open_all(&all);
    int rc = result(&all, err);
    progress_close(&all.measuring);
    progress_close(&all.loading);
    pthread_cond_destroy(&all.changed);
    pthread_mutex_destroy(&all.lock);
    free(all.list);
    return rc;
}
