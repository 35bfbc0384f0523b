// Models by name. See kserve.h.
#include "ws/kserve/kserve.h"
#include "sessions/engines/placement.h"
#include "ws/service.h"
#include <stdlib.h>
#include <string.h>

const char *const kserve_extensions[] = {
    "sequence", "sequence(string_id)", "binary_tensor_data", "parameters", "generate", "statistics",
    NULL};

const struct kserve_absence kserve_absences[KSERVE_LACKING] = {
    [LACKS_LOADING] = {KSERVE_UNAVAILABLE,
                       "explicit model load / unload is not allowed over this protocol: use "
                       "`parley instances`"},
    [LACKS_TRACING] = {KSERVE_UNAVAILABLE, "the server does not support tracing"},
    [LACKS_LOGGING] = {KSERVE_UNAVAILABLE, "the server does not support dynamic logging"},
    [LACKS_REGIONS] = {KSERVE_UNSUPPORTED,
                       "the server does not support shared memory: send tensors in the request"},
};

int kserve_open(struct kserve **out) {
    *out = calloc(1, sizeof **out);
    return *out ? 0 : E_NOMEM;
}

void kserve_close(struct kserve *k) {
    if (!k) return;
    sequences_release(&k->sequences);
    free(k);
}

void kserve_count(struct kserve *k, enum infer_model model, bool failed, int64_t begun_us,
                  int64_t started_us) {
    struct kserve_stats *s = &k->stats[model];
    int64_t now = net_now_us();
    *(failed ? &s->n_failed : &s->n_done) += 1;
    s->last_ms = clock_wall_us(&clock_system) / 1000;
    if (failed) return;
    s->done_us += now - begun_us;
    s->queue_us += started_us - begun_us;
    s->infer_us += now - started_us;
}

// The names that FasterTransformer's clients use, all for the default model. A served model's own name, and
// its alias, mean MODEL_IDS.
static const char *const names[INFER_MODELS] = {[MODEL_IDS] = "fastertransformer",
                                                [MODEL_TEXT] = "ensemble",
                                                [MODEL_ENCODE] = "preprocessing",
                                                [MODEL_DECODE] = "postprocessing"};

const char *kserve_model_name(const struct service *s, size_t i) {
    const struct served_model *m = sessions_placement(s->sessions)->models;
    if (i < INFER_MODELS) return names[i];
    for (i -= INFER_MODELS; m; m = m->next) {
        if (i-- == 0) return m->name;
        if (m->alias && i-- == 0) return m->alias;
    }
    return NULL;
}

// A table of prefixes is the largest input: GPT-J's has 900 KB for each of its tokens.
#define TABLE_TOKENS 32
#define TABLE_ROWS 8
#define DEFAULT_MOST_BYTES (256 << 20)

size_t kserve_infer_bytes(const struct service *s) {
    size_t message = (size_t)s->config->max_message_bytes, most = message;
    const struct served_model *m = sessions_placement(s->sessions)->models;
    for (; m && !s->config->max_infer_bytes; m = m->next) {
        size_t width = (size_t)engine_prompt_width(m->engine, PROMPT_PREFIX);
        size_t bytes = width * sizeof(float) * TABLE_TOKENS * TABLE_ROWS;
        if (bytes > DEFAULT_MOST_BYTES) bytes = DEFAULT_MOST_BYTES;
        if (bytes > most) most = bytes;
    }
    size_t set = (size_t)s->config->max_infer_bytes;
    return set > most ? set : most;
}

static int name_index(const char *name) {
    int i = 0;
    while (i < INFER_MODELS && strcmp(names[i], name) != 0) i++;
    return i;
}

const char *kserve_served_name(const char *name) {
    return name_index(name) < INFER_MODELS ? NULL : name;
}

bool kserve_find_model(const struct service *s, const char *name, const char *version,
                       enum infer_model *out) {
    if (version && *version && strcmp(version, "1") != 0) return false;
    int i = name_index(name);
    *out = i < INFER_MODELS ? (enum infer_model)i : MODEL_IDS;
    const struct served_model *served = service_hold_model(s, kserve_served_name(name));
    placement_drop(served);
    return served;
}
