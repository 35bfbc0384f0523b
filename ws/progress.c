// See progress.h.
#include "ws/progress.h"
#include <stdio.h>

#define BAR_WIDTH 30

void progress_open(struct progress *p, const char *what, struct progress *after) {
    *p = (struct progress){.after = after, .shown = -1};
    pthread_mutex_init(&p->lock, NULL);
    snprintf(p->what, sizeof p->what, "%s", what);
}

void progress_close(struct progress *p) {
    pthread_mutex_destroy(&p->lock);
}

static bool is_complete(struct progress *p) {
    pthread_mutex_lock(&p->lock);
    bool yes = p->sum == 100 * p->n_parts;
    pthread_mutex_unlock(&p->lock);
    return yes;
}

static void show(struct progress *p, int percent) {
    int full = percent * BAR_WIDTH / 100;
    p->shown = percent;
    fprintf(stderr, "\r%s [%.*s%*s] %3d %%", p->what, full, "##############################",
            BAR_WIDTH - full, "", percent);
    if (percent == 100) fputc('\n', stderr);
}

static void join(struct progress_part *x) {
    if (!x->has_joined) x->whole->n_parts++;
    x->has_joined = true;
}

void progress_join(struct progress_part *x) {
    pthread_mutex_lock(&x->whole->lock);
    join(x);
    pthread_mutex_unlock(&x->whole->lock);
}

void progress_report(void *part, int64_t done, int64_t total) {
    struct progress_part *x = part;
    struct progress *p = x->whole;
    int percent = total > 0 ? (int)(done * 100 / total) : 100;
    pthread_mutex_lock(&p->lock);
    join(x);
    p->sum += percent - x->percent;
    x->percent = percent;
    int mean = p->sum / p->n_parts;
    if (mean != p->shown && (!p->after || is_complete(p->after))) show(p, mean);
    pthread_mutex_unlock(&p->lock);
}
