// Models, instances, and the choice of one for a turn. See placement.h.
#include "sessions/engines/placement.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/xxh64.h"
#include "sessions/store/record.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define TO(state) (1u << INSTANCE_##state)

static const struct {
    const char *name;
    unsigned next;
} states[N_INSTANCE_STATES] = {
    [INSTANCE_SERVING] = {"serving", TO(DRAINING) | TO(LOST)},
    [INSTANCE_DRAINING] = {"draining", TO(DRAINED) | TO(LOST)},
    [INSTANCE_DRAINED] = {"drained", TO(LOST)},
    [INSTANCE_LOST] = {"lost", TO(SERVING) | TO(DRAINED)},
};

const char *instance_state_name(enum instance_state s) {
    return states[s].name;
}

bool instance_leads_to(enum instance_state from, enum instance_state to) {
    return states[from].next >> to & 1;
}

void instance_set(struct instance *i, enum instance_state to) {
    if (i->state == to) return;
    assert(instance_leads_to(i->state, to));
    i->state = to;
}

bool instance_takes_turns(const struct instance *i) {
    return i->state == INSTANCE_SERVING && !i->failed;
}

bool instance_name_valid(const char *name) {
    size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.");
    return n > 0 && n <= INSTANCE_NAME_MAX && name[n] == '\0' && name[0] != '.';
}

// --- models ----------------------------------------------------------------------------------

static bool same(const char *a, const char *b) {
    return strcmp(a ? a : "", b ? b : "") == 0;
}

// Without the number of threads, which changes no bit: "cpu: AVX-512, 2 threads".
static size_t kind_len(const char *backend) {
    const char *threads = strrchr(backend, ',');
    return strncmp(backend, "cpu: ", 5) == 0 && threads ? (size_t)(threads - backend)
                                                        : strlen(backend);
}

// Whether a turn has the same tokens with both engines.
static bool computes_alike(const struct engine_info *a, const struct engine_info *b) {
    size_t len = kind_len(a->backend);
    return len == kind_len(b->backend) && strncmp(a->backend, b->backend, len) == 0 &&
           same(a->weight_dtype, b->weight_dtype) && a->kv_dtype == b->kv_dtype &&
           a->vocabulary == b->vocabulary && same(a->chat_template, b->chat_template);
}

static int check_lengths(const struct instance_options *o, const struct engine_info *info,
                         struct err *err) {
    if (o->memory_len > info->max_memory_len)
        return err_set(err, E_INVAL,
                       "memory_len %d is more than the cache can hold for one session (%d)",
                       o->memory_len, info->max_memory_len);
    int32_t memory_len = o->memory_len ? o->memory_len : info->default_memory_len;
    if (o->sink_len < 0 || o->sink_len >= memory_len)
        return err_set(err, E_INVAL, "sink_len %d must be from 0 to memory_len - 1 (%d)",
                       o->sink_len, memory_len - 1);
    if (o->session_len > info->max_session_len)
        return err_set(err, E_INVAL,
                       "session_len %lld is more than this model takes: its positions end at "
                       "%lld, which 0 sets as well",
                       (long long)o->session_len, (long long)info->max_session_len);
    return 0;
}

static struct served_model *model_named(const struct placement *p, const char *name) {
    struct served_model *m;
    DL_FOREACH(p->models, m) {
        if (strcmp(m->name, name) == 0 || (m->alias && strcmp(m->alias, name) == 0)) return m;
    }
    return NULL;
}

// Clients may name the model by one of its instances, unless a model has that name.
static struct served_model *model_called(const struct placement *p, const char *name) {
    struct served_model *m = model_named(p, name);
    const struct instance *i = m || !*name ? NULL : placement_find(p, name);
    return i ? i->model : m;
}

static int check_instance(const struct placement *p, const struct instance_options *o,
                          const struct engine_info *info, struct err *err) {
    const struct instance *i;
    if (o->name && *o->name && !instance_name_valid(o->name))
        return err_set(err, E_INVAL,
                       "instance '%.40s': a name has up to %d letters, digits, '-', '_' or '.'",
                       o->name, INSTANCE_NAME_MAX);
    if (placement_find(p, o->name ? o->name : ""))
        return err_set(err, E_INVAL, "there is an instance '%s' already", o->name ? o->name : "");
    TRY(check_lengths(o, info, err));
    const char *const names[] = {info->model_name, o->alias && *o->alias ? o->alias : NULL};
    for (int k = 0; k < 2 && names[k]; k++) {
        const struct served_model *other = model_named(p, names[k]);
        if (other && strcmp(other->name, info->model_name) != 0)
            return err_set(err, E_INVAL, "instance '%s': another model is called '%.64s' already",
                           o->name ? o->name : "", names[k]);
    }
    DL_FOREACH(p->instances, i) {
        if (strcmp(i->info->model_name, info->model_name) != 0) continue;
        if (strcmp(i->info->fingerprint, info->fingerprint) != 0)
            return err_set(err, E_INVAL,
                           "instance '%s': another model is called '%s' already (instance '%s'); "
                           "rename one of the folders",
                           o->name ? o->name : "", info->model_name, i->name);
        if (!computes_alike(i->info, info))
            return err_set(err, E_INVAL,
                           "instance '%s' would not compute '%s' as instance '%s' does: all "
                           "instances of a model need the same kind of device, number formats, "
                           "tokens and chat template",
                           o->name ? o->name : "", info->model_name, i->name);
    }
    return 0;
}

static void free_model(struct served_model *m) {
    if (!m) return;
    free(m->name);
    free(m->alias);
    free(m->suggestions);
    free(m);
}

static struct served_model *model_new(const struct instance_options *o,
                                      const struct engine_info *info) {
    struct served_model *m = calloc(1, sizeof *m);
    bool failed = false;
    if (!m) return NULL;
    m->name = record_strdup(info->model_name, &failed);
    m->alias = o->alias && *o->alias ? record_strdup(o->alias, &failed) : NULL;
    m->suggestions = record_strdup(o->suggestions, &failed);
    m->engine = o->engine;
    m->info = info;
    m->sampling = o->sampling;
    m->volatile_text = o->volatile_text;
    m->memory_len = o->memory_len ? o->memory_len : info->default_memory_len;
    m->sink_len = o->sink_len;
    atomic_init(&m->holds, 1);
    m->loaded_s = clock_wall_us(&clock_system) / 1000000;
    m->session_len = o->session_len ? o->session_len : info->max_session_len;
    if (!failed) return m;
    free_model(m);
    return NULL;
}

int placement_add(struct placement *p, const struct instance_options *o, struct instance **out,
                  struct err *err) {
    const struct engine_info *info = engine_info(o->engine);
    TRY(check_instance(p, o, info, err));
    struct instance *i = calloc(1, sizeof *i);
    struct served_model *known = model_named(p, info->model_name);
    struct served_model *m = known || !i ? known : model_new(o, info);
    if (!i || !m) {
        free(i);
        return err_set(err, E_NOMEM, "no memory for an instance");
    }
    snprintf(i->name, sizeof i->name, "%s", o->name ? o->name : "");
    i->engine = o->engine;
    i->info = info;
    i->model = m;
    i->max_sequences = o->max_sequences > 0 ? o->max_sequences : 1;
    i->reopens = o->reopens;
    pthread_mutex_lock(&p->lock);
    if (!known) DL_APPEND(p->models, m);
    p->models_version++;
    DL_APPEND(p->instances, i);
    pthread_mutex_unlock(&p->lock);
    *out = i;
    return 0;
}

static struct instance *another_of(const struct placement *p, const struct instance *gone) {
    struct instance *i;
    DL_FOREACH(p->instances, i) {
        if (i->model == gone->model && i != gone) return i;
    }
    return NULL;
}

const struct served_model *placement_keep(const struct served_model *held) {
    struct served_model *m = (struct served_model *)(uintptr_t)held;
    if (m) atomic_fetch_add(&m->holds, 1);
    return m;
}

void placement_drop(const struct served_model *held) {
    struct served_model *m = (struct served_model *)(uintptr_t)held;
    if (m && atomic_fetch_sub(&m->holds, 1) == 1) free_model(m);
}

bool placement_is_unused(const struct served_model *m) {
    return atomic_load(&m->holds) == 1;
}

// The same model with another instance's engine.
static struct served_model *model_with(const struct served_model *m, const struct instance *i) {
    struct served_model *other = malloc(sizeof *other);
    bool failed = false;
    if (!other) return NULL;
    *other = *m;
    other->name = record_strdup(m->name, &failed);
    other->alias = record_strdup(m->alias, &failed);
    other->suggestions = record_strdup(m->suggestions, &failed);
    other->engine = i->engine;
    other->info = i->info;
    atomic_init(&other->holds, 1);
    if (!failed) return other;
    free_model(other);
    return NULL;
}

static void replace_model(struct placement *p, struct served_model *m, struct served_model *by) {
    struct instance *i;
    DL_REPLACE_ELEM(p->models, m, by);
    DL_FOREACH(p->instances, i) {
        if (i->model == m) i->model = by;
    }
}

static int remove_now(struct placement *p, struct instance *i, const struct served_model **model) {
    struct served_model *m = i->model, *by = NULL;
    const struct instance *other = another_of(p, i);
    bool names_it = m->engine == i->engine;
    if (other && names_it && !(by = model_with(m, other))) return E_NOMEM;
    DL_DELETE(p->instances, i);
    for (size_t k = 0; k < PLACEMENT_PREFIXES; k++)
        if (p->prefixes[k].at == i) p->prefixes[k] = (struct placed_prefix){0};
    if (by) replace_model(p, m, by);
    if (!other) DL_DELETE(p->models, m);
    p->models_version++;
    *model = names_it ? m : NULL; // with the hold that the list had
    free(i);
    return 0;
}

int placement_remove(struct placement *p, struct instance *i, const struct served_model **model) {
    pthread_mutex_lock(&p->lock);
    int rc = remove_now(p, i, model);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

bool placement_has_other(const struct placement *p, const struct instance *i) {
    const struct instance *o;
    DL_FOREACH(p->instances, o) {
        if (o != i && o->model == i->model && instance_takes_turns(o)) return true;
    }
    return false;
}

int placement_init(struct placement *p) {
    *p = (struct placement){.models_version = 1};
    return pthread_mutex_init(&p->lock, NULL) == 0 ? 0 : E_NOMEM;
}

void placement_release(struct placement *p) {
    while (p->instances) {
        struct instance *i = p->instances;
        DL_DELETE(p->instances, i);
        free(i);
    }
    while (p->models) {
        struct served_model *m = p->models;
        DL_DELETE(p->models, m);
        placement_drop(m);
    }
    pthread_mutex_destroy(&p->lock);
}

const struct served_model *placement_hold(struct placement *p, const char *name) {
    pthread_mutex_lock(&p->lock);
    struct served_model *m = name ? model_called(p, name) : p->models;
    if (m) atomic_fetch_add(&m->holds, 1);
    pthread_mutex_unlock(&p->lock);
    return m;
}

const char *placement_names(const struct placement *p, char out[PLACEMENT_NAMES_MAX]) {
    const struct served_model *m;
    size_t len = 0;
    snprintf(out, PLACEMENT_NAMES_MAX, "none");
    DL_FOREACH(p->models, m) {
        if (len < PLACEMENT_NAMES_MAX)
            len += (size_t)snprintf(out + len, PLACEMENT_NAMES_MAX - len, "%s'%s'", len ? ", " : "",
                                    m->name);
    }
    return out;
}

const struct served_model *placement_hold_asked(struct placement *p, const char *name,
                                                struct err *err) {
    char names[PLACEMENT_NAMES_MAX];
    bool named = name && *name;
    pthread_mutex_lock(&p->lock);
    struct served_model *m = named ? model_called(p, name) : p->models;
    if (!named && m && m->next) m = NULL;
    if (m) atomic_fetch_add(&m->holds, 1);
    placement_names(p, names);
    pthread_mutex_unlock(&p->lock);
    if (m) return m;
    if (named)
        err_set(err, E_NOTFOUND, "'%.64s' does not exist", name);
    else
        err_set(err, E_INVAL, "is missing; this server has %s", names);
    return NULL;
}

int placement_find_model(const struct placement *p, const char *name, struct served_model **out,
                         struct err *err) {
    char names[PLACEMENT_NAMES_MAX];
    *out = name ? model_called(p, name) : p->models;
    if (*out) return 0;
    if (!p->models) return err_set(err, E_BUSY, "no model is loaded now");
    return err_set(err, E_INVAL, "model: there is no '%.64s'; this server has %s", name,
                   placement_names(p, names));
}

int placement_unloaded(const struct placement *p, const char *name, struct err *err) {
    char names[PLACEMENT_NAMES_MAX];
    return err_set(err, E_BUSY,
                   "model: '%.64s' was unloaded while the request waited; this server has %s", name,
                   placement_names(p, names));
}

int placement_find_held(const struct placement *p, const struct served_model *held,
                        struct served_model **out, struct err *err) {
    *out = placement_model_of(p, held->name, held->info->fingerprint);
    return *out ? 0 : placement_unloaded(p, held->name, err);
}

struct served_model *placement_model_of(const struct placement *p, const char *name,
                                        const char *fingerprint) {
    struct served_model *m, *found = NULL;
    DL_FOREACH(p->models, m) {
        if (strcmp(m->info->fingerprint, fingerprint) != 0) continue;
        if (strcmp(m->name, name) == 0) return m;
        if (!found) found = m;
    }
    return found;
}

struct instance *placement_find(const struct placement *p, const char *name) {
    struct instance *i;
    DL_FOREACH(p->instances, i) {
        if (strcmp(i->name, name) == 0) return i;
    }
    return NULL;
}

int32_t placement_max_vocab(const struct placement *p) {
    const struct served_model *m;
    int32_t most = 0;
    DL_FOREACH(p->models, m) {
        if (m->info->n_vocab > most) most = m->info->n_vocab;
    }
    return most;
}

bool placement_has_snapshot(const struct placement *p, const char *lasting) {
    const struct instance *i;
    DL_FOREACH(p->instances, i) {
        if (engine_has_snapshot(i->engine, lasting)) return true;
    }
    return false;
}

// --- the choice ------------------------------------------------------------------------------

// A hash of the log's first block and its owner: only whole blocks are shared, and only within a group.
// 0: the log is shorter than a block.
static uint64_t prefix_of(const struct placement_turn *t) {
    size_t n = (size_t)t->model->info->block_tokens;
    if (n == 0 || t->n_ids <= n) return 0;
    uint64_t hash = xxh64(t->ids, n * sizeof *t->ids, t->owner);
    return hash ? hash : 1;
}

static bool has_file(const struct instance *i, const struct placement_turn *t) {
    if (t->lasting && engine_has_snapshot(i->engine, t->lasting)) return true;
    for (size_t k = 0; k < t->n_origins; k++)
        if (engine_has_snapshot(i->engine, t->origins[k])) return true;
    return false;
}

// Less is better. The share grows beyond 1, because turns beyond the places wait.
static double load_of(const struct instance *i) {
    return (double)i->n_turns / i->max_sequences;
}

static bool is_better(const struct instance *a, const struct instance *b) {
    double x = load_of(a), y = load_of(b);
    if (x != y) return x < y;
    return a->n_sessions < b->n_sessions;
}

struct instance *placement_least_loaded(const struct placement *p) {
    struct instance *i, *best = NULL;
    DL_FOREACH(p->instances, i) {
        if (instance_takes_turns(i) && (!best || is_better(i, best))) best = i;
    }
    return best;
}

// Puts the instance at `at` first; the others keep their order.
static void to_front(struct instance **list, size_t at) {
    struct instance *i = list[at];
    memmove(list + 1, list, at * sizeof *list);
    list[0] = i;
}

size_t placement_choose(const struct placement *p, const struct placement_turn *t,
                        struct instance **out, size_t cap, uint64_t *prefix) {
    struct instance *i;
    size_t n = 0;
    *prefix = 0;
    DL_FOREACH(p->instances, i) {
        if (i->model != t->model || !instance_takes_turns(i)) continue;
        if (n == cap && !is_better(i, out[n - 1])) continue;
        size_t at = n < cap ? n++ : n - 1;
        for (; at > 0 && is_better(i, out[at - 1]); at--) out[at] = out[at - 1];
        out[at] = i;
    }
    if (n < 2) return n;
    *prefix = prefix_of(t);
    const struct placed_prefix *known = &p->prefixes[*prefix % PLACEMENT_PREFIXES];
    for (size_t k = 1; *prefix && known->hash == *prefix && k < n; k++)
        if (out[k] == known->at && out[k]->n_turns <= out[0]->n_turns + PLACEMENT_SLACK)
            to_front(out, k);
    for (size_t k = 0; k < n; k++) {
        if (!has_file(out[k], t)) continue;
        to_front(out, k);
        return n;
    }
    if (n < cap) return n;
    DL_FOREACH(p->instances, i) { // an instance with more turns may have the file
        if (i->model != t->model || !instance_takes_turns(i) || !has_file(i, t)) continue;
        out[n - 1] = i;
        to_front(out, n - 1);
        break;
    }
    return n;
}

void placement_note(struct placement *p, uint64_t prefix, struct instance *i) {
    if (prefix) p->prefixes[prefix % PLACEMENT_PREFIXES] = (struct placed_prefix){prefix, i};
}
