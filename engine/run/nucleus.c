#include "engine/run/nucleus.h"
#include "engine/run/lanes.h"
#include "engine/run/log_softmax.h"
#include <float.h>

enum { OUTSIDE = SAMPLER_BUCKETS }; // the bucket of tokens that are left out

typedef uint16_t u16x8 __attribute__((vector_size(16)));

static float weight_of(const struct nucleus *nu, int32_t id) {
    return exp_nonpositive(f32x4_splat((nu->logits[id] - nu->max) * nu->inverse_temperature))[0];
}

// Whether token a comes before token b.
static inline bool precedes(const float *logits, int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

// Shell sort: in place, without recursion, near-linear on ids that are nearly in order (equal logits
// are, since ids ascend), and never quadratic, for the rare row whose tokens all share one bucket.
static void sort_members(const float *logits, int32_t *ids, int32_t n) {
    static const int32_t gaps[] = {587521, 260609, 146305, 64769, 36289, 16001, 8929, 3905, 2161,
                                   929,    505,    209,    109,   41,    19,    5,    1};
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++) {
        int32_t gap = gaps[g];
        for (int32_t i = gap; i < n; i++) {
            int32_t id = ids[i], j = i;
            for (; j >= gap && precedes(logits, id, ids[j - gap]); j -= gap) ids[j] = ids[j - gap];
            ids[j] = id;
        }
    }
}

// Makes work->members the ids of one bucket, in order.
static const int32_t *sorted_members(struct nucleus *nu, int32_t bucket) {
    struct sampler_work *w = nu->work;
    if (nu->sorted == bucket) return w->members;
    int32_t n = 0, i = 0;
    for (; i + 8 <= nu->n_vocab; i += 8) {
        u16x8 b;
        memcpy(&b, w->bucket + i, sizeof b);
        if (!i32x4_any((i32x4)(b == (uint16_t)bucket))) continue;
        for (int32_t j = i; j < i + 8; j++)
            if (w->bucket[j] == bucket) w->members[n++] = j;
    }
    for (; i < nu->n_vocab; i++)
        if (w->bucket[i] == bucket) w->members[n++] = i;
    sort_members(nu->logits, w->members, n);
    nu->sorted = bucket;
    return w->members;
}

// Sets the slices: from the best logit down to the least one or to NUCLEUS_DEPTH, whichever is
// nearer. The clamps keep 0 * scale from becoming NaN where the range is 0 or the temperature
// denormal.
static void set_scale(struct nucleus *nu, float temperature, float *range) {
    *range = fminf(nu->max - row_min(nu->logits, nu->n_vocab), NUCLEUS_DEPTH * temperature);
    nu->inverse_temperature = fminf(1 / temperature, FLT_MAX);
    nu->slices_per_logit = fminf(SAMPLER_BUCKETS / *range, FLT_MAX);
}

static i32x4 bucket_of(const struct nucleus *nu, f32x4 depth) {
    f32x4 slice = f32x4_min(depth * nu->slices_per_logit, f32x4_splat(SAMPLER_BUCKETS - 1));
    return __builtin_convertvector(slice, i32x4);
}

// The pass over the vocabulary, in ascending id.
static void fill_buckets(struct nucleus *nu, float range) {
    struct sampler_work *w = nu->work;
    memset(w->mass, 0, SAMPLER_BUCKETS * sizeof *w->mass);
    memset(w->count, 0, SAMPLER_BUCKETS * sizeof *w->count);
    for (int32_t i = 0; i < nu->n_vocab; i += CHUNK) {
        int32_t n = nu->n_vocab - i < CHUNK ? nu->n_vocab - i : CHUNK;
        struct chunk c = chunk_load(nu->logits + i, nu->n_vocab - i);
        float weight[CHUNK];
        int32_t bucket[CHUNK];
        for (int k = 0; k < 4; k++) {
            f32x4 depth = nu->max - c.v[k];
            i32x4 outside = depth > range;
            f32x4 e = exp_nonpositive(-depth * nu->inverse_temperature);
            i32x4 b = (bucket_of(nu, depth) & ~outside) | (outside & OUTSIDE);
            memcpy(weight + 4 * k, &e, sizeof e);
            memcpy(bucket + 4 * k, &b, sizeof b);
        }
        for (int32_t j = 0; j < n; j++) {
            int32_t b = bucket[j];
            w->bucket[i + j] = (uint16_t)b;
            if (b == OUTSIDE) continue;
            w->mass[b] += (double)weight[j];
            w->count[b]++;
        }
    }
}

void nucleus_init(struct nucleus *nu, struct sampler_work *w, const float *logits, int32_t n_vocab,
                  float max, float temperature) {
    float range;
    *nu =
        (struct nucleus){.work = w, .logits = logits, .n_vocab = n_vocab, .max = max, .sorted = -1};
    set_scale(nu, temperature, &range);
    fill_buckets(nu, range);
    struct prefix *all = &nu->kept;
    for (int32_t b = 0; b < SAMPLER_BUCKETS; b++) {
        if (w->count[b] == 0) continue;
        *all = (struct prefix){b, w->count[b], all->count + w->count[b], all->mass + w->mass[b]};
    }
}

// How many tokens of a bucket, up to the last kept one, are kept.
static int32_t kept_inside(const struct nucleus *nu, int32_t bucket) {
    return bucket < nu->kept.bucket ? nu->work->count[bucket] : nu->kept.n_inside;
}

void nucleus_keep_count(struct nucleus *nu, int32_t k) {
    if (nu->kept.count <= k) return;
    struct prefix p = {0};
    while (p.count + kept_inside(nu, p.bucket) < k) {
        p.count += nu->work->count[p.bucket];
        p.mass += nu->work->mass[p.bucket];
        p.bucket++;
    }
    const int32_t *ids = sorted_members(nu, p.bucket);
    for (; p.count < k; p.count++) p.mass += (double)weight_of(nu, ids[p.n_inside++]);
    nu->kept = p;
}

// The shortest prefix whose mass reaches the target, or exceeds it if `beyond`. If rounding keeps the
// sum slightly below the total, the prefix ends with the last kept token.
static struct prefix reach_mass(struct nucleus *nu, double target, bool beyond) {
    struct prefix p = {0};
    for (; p.bucket < nu->kept.bucket; p.bucket++) {
        double mass = p.mass + nu->work->mass[p.bucket];
        if (beyond ? mass > target : mass >= target) break;
        p.mass = mass;
        p.count += nu->work->count[p.bucket];
    }
    int32_t n = kept_inside(nu, p.bucket);
    const int32_t *ids = sorted_members(nu, p.bucket);
    while (p.n_inside < n) {
        p.mass += (double)weight_of(nu, ids[p.n_inside++]);
        p.count++;
        if (beyond ? p.mass > target : p.mass >= target) break;
    }
    return p;
}

void nucleus_keep_mass(struct nucleus *nu, float p) {
    if (p < 1) nu->kept = reach_mass(nu, (double)p * nu->kept.mass, false);
}

void nucleus_keep_ratio(struct nucleus *nu, float p) {
    if (!(p > 0)) return;
    // p = 1 gives exactly the best logit: only tokens with the same logit are kept.
    float least = (float)((double)nu->max + log((double)p) / (double)nu->inverse_temperature);
    int32_t bucket = bucket_of(nu, f32x4_splat(nu->max - least))[0];
    if (bucket > nu->kept.bucket) return;
    struct prefix cut = {.bucket = bucket};
    for (int32_t b = 0; b < bucket; b++) {
        cut.count += nu->work->count[b];
        cut.mass += nu->work->mass[b];
    }
    int32_t n = kept_inside(nu, bucket);
    const int32_t *ids = sorted_members(nu, bucket);
    for (; cut.n_inside < n && nu->logits[ids[cut.n_inside]] >= least; cut.n_inside++) {
        cut.mass += (double)weight_of(nu, ids[cut.n_inside]);
        cut.count++;
    }
    // The last kept token lies in a better bucket: at the latest, the best one's.
    while (cut.n_inside == 0) {
        cut.bucket--;
        cut.n_inside = nu->work->count[cut.bucket];
    }
    nu->kept = cut;
}

int32_t nucleus_draw(struct nucleus *nu, float u) {
    struct prefix p = reach_mass(nu, (double)u * nu->kept.mass, true);
    return sorted_members(nu, p.bucket)[p.n_inside - 1];
}

void nucleus_probabilities(struct nucleus *nu, float *probs) {
    memset(probs, 0, (size_t)nu->n_vocab * sizeof *probs);
    for (int32_t i = 0; i < nu->n_vocab; i++)
        if (nu->work->bucket[i] < nu->kept.bucket)
            probs[i] = (float)((double)weight_of(nu, i) / nu->kept.mass);
    const int32_t *ids = sorted_members(nu, nu->kept.bucket);
    for (int32_t i = 0; i < nu->kept.n_inside; i++)
        probs[ids[i]] = (float)((double)weight_of(nu, ids[i]) / nu->kept.mass);
}
