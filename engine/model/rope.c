// Rotary frequencies. See rope.h.
//
// The arithmetic repeats transformers' modeling_rope_utils.py operation by operation. There, tensors
// are F32; Python's scalars are doubles, rounded to F32 when they are combined with a tensor; and
// SCALAR / TENSOR is the tensor's reciprocal times the scalar. A difference in the last bit of a
// frequency would become a visible difference of the angle at position 100,000.
#include "engine/model/rope.h"
#include "base/json.h"
#include <math.h>
#include <string.h>

struct rope_params { // as in config.json; 0: not given
    const char *type;
    double part; // of a head
    double theta, factor, low_freq_factor, high_freq_factor, original_max;
    double attention_factor, beta_fast, beta_slow, mscale, mscale_all_dim;
    bool truncate;
    double alpha, query_beta;                // Hunyuan's scale of theta; Ministral's of queries
    const cJSON *long_factor, *short_factor; // longrope: a divisor for each frequency
};

// --- reading ---

static const char *const known_keys[] = {
    "rope_type",
    "type",
    "rope_theta",
    "partial_rotary_factor",
    "original_max_position_embeddings",
    "factor",
    "truncate",
    "beta_fast",
    "beta_slow",
    "low_freq_factor",
    "mscale",
    "mscale_all_dim",
    "high_freq_factor",
    "attention_factor",
    "alpha",
    "llama_4_scaling_beta",
    "long_factor",
    "short_factor",
    "mrope_section", // how positions of images are divided; those of text are all equal
    "mrope_interleaved",
    "finetuned",   // written by early yarn models; transformers ignores it, and the next one too
    "attn_factor", // of DeepSeek-R1-0528-Qwen3-8B
};

static int check_keys(const cJSON *dict, struct err *err) {
    const cJSON *item;
    cJSON_ArrayForEach(item, dict) {
        size_t i = 0, n = sizeof known_keys / sizeof *known_keys;
        while (i < n && strcmp(known_keys[i], item->string) != 0) i++;
        if (i == n && !cJSON_IsNull(item))
            return err_set(err, E_UNSUPPORTED, "the rotary parameter '%.60s' is not understood",
                           item->string);
    }
    return 0;
}

// part 0: whole heads.
static int read_part(struct rope_params *p, double part, const cJSON *dict, struct err *err) {
    TRY(json_get_double(dict, "partial_rotary_factor", 0, 1, &p->part, err));
    if (part != 0 || p->part == 1) return 0;
    return err_set(err, E_UNSUPPORTED, "'partial_rotary_factor' %g in this family", p->part);
}

// dict: rope_scaling, rope_parameters or NULL. theta and the part stand in it (v5) or beside it
// (v4).
static int read_params(struct rope_params *p, const struct rope_request *r, const cJSON *dict,
                       const cJSON *json, struct err *err) {
    const struct {
        const char *key;
        double min, max, *to;
    } numbers[] = {
        {"rope_theta", 1, 1e15, &p->theta},
        {"factor", 1e-6, 1e6, &p->factor},
        {"low_freq_factor", 1e-6, 1e6, &p->low_freq_factor},
        {"high_freq_factor", 1e-6, 1e6, &p->high_freq_factor},
        {"original_max_position_embeddings", 1, INT32_MAX, &p->original_max},
        {"attention_factor", 1e-6, 1e6, &p->attention_factor},
        {"beta_fast", 0, 1e6, &p->beta_fast},
        {"beta_slow", 0, 1e6, &p->beta_slow},
        {"mscale", 0, 1e6, &p->mscale},
        {"mscale_all_dim", 0, 1e6, &p->mscale_all_dim},
        {"alpha", 1e-6, 1e9, &p->alpha},
        {"llama_4_scaling_beta", 0, 1e3, &p->query_beta},
    };
    *p = (struct rope_params){
        .type = "default", .theta = r->theta, .truncate = true, .part = r->part != 0 ? r->part : 1};
    TRY(json_get_double(json, r->theta_key, 1, 1e15, &p->theta, err));
    TRY(read_part(p, r->part, json, err));
    if (!dict) return 0;
    TRY(check_keys(dict, err));
    TRY(read_part(p, r->part, dict, err));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        TRY(json_get_double(dict, numbers[i].key, numbers[i].min, numbers[i].max, numbers[i].to,
                            err));
    TRY(json_get_string(dict, "type", &p->type, err));
    TRY(json_get_string(dict, "rope_type", &p->type, err));
    TRY(json_get_array(dict, "long_factor", &p->long_factor, err));
    TRY(json_get_array(dict, "short_factor", &p->short_factor, err));
    TRY(json_get_bool(dict, "truncate", &p->truncate, err));
    return 0;
}

static bool same_params(const struct rope_params *a, const struct rope_params *b) {
    return strcmp(a->type, b->type) == 0 && a->part == b->part && a->theta == b->theta &&
           a->factor == b->factor && a->low_freq_factor == b->low_freq_factor &&
           a->high_freq_factor == b->high_freq_factor && a->original_max == b->original_max &&
           a->attention_factor == b->attention_factor && a->beta_fast == b->beta_fast &&
           a->beta_slow == b->beta_slow && a->mscale == b->mscale && a->alpha == b->alpha &&
           a->query_beta == b->query_beta &&
           (!a->long_factor || cJSON_Compare(a->long_factor, b->long_factor, true)) &&
           (!a->short_factor || cJSON_Compare(a->short_factor, b->short_factor, true)) &&
           a->mscale_all_dim == b->mscale_all_dim && a->truncate == b->truncate;
}

// rope_parameters may have an object for each kind of layers.
static int of_layers(const struct rope_request *r, const cJSON **dict, struct err *err) {
    const cJSON *own = NULL;
    bool keyed = cJSON_GetObjectItemCaseSensitive(*dict, "full_attention") ||
                 cJSON_GetObjectItemCaseSensitive(*dict, "sliding_attention");
    if (!keyed || !r->layers) return 0;
    TRY(json_get_object(*dict, r->layers, &own, err));
    if (!own) return err_set(err, E_FORMAT, "'rope_parameters' has no '%s'", r->layers);
    *dict = own;
    return 0;
}

int rope_default(const char *ropes, const cJSON *json, cJSON **out, struct err *err) {
    *out = NULL;
    if (!ropes || cJSON_GetObjectItemCaseSensitive(json, "rope_scaling") ||
        cJSON_GetObjectItemCaseSensitive(json, "rope_parameters"))
        return 0;
    *out = cJSON_Parse(ropes);
    return *out ? 0 : err_set(err, E_NOMEM, "out of memory for the rotary parameters");
}

// A file may carry both spellings, for old and new readers; then they must agree. otherwise: of a file without any.
static int read_spellings(struct rope_params *p, const struct rope_request *r, const cJSON *json,
                          const cJSON *otherwise, struct err *err) {
    const cJSON *v4 = NULL, *v5 = NULL;
    struct rope_params other;
    if (!r->unscaled) TRY(json_get_object(json, "rope_scaling", &v4, err));
    TRY(json_get_object(json, "rope_parameters", &v5, err));
    if (v5) TRY(of_layers(r, &v5, err));
    TRY(read_params(p, r, v5 ? v5 : v4 ? v4 : otherwise, json, err));
    if (!v4 || !v5) return 0;
    TRY(read_params(&other, r, v4, json, err));
    if (!same_params(p, &other))
        return err_set(err, E_FORMAT, "'rope_scaling' and 'rope_parameters' disagree");
    return 0;
}

static int require(double v, const char *type, const char *key, struct err *err) {
    return v > 0 ? 0 : err_set(err, E_FORMAT, "rotary scaling '%s' needs '%s'", type, key);
}

// --- the scalings ---

// The correctly rounded F32 power. powf may differ in its last bit from one processor to the next,
// and with it every angle and the model's fingerprint.
static float power(float base, float exponent) {
    return (float)pow(base, exponent);
}

static void scale_llama3(float *inv_freq, int32_t n, const struct rope_params *p) {
    float low_wavelen = (float)(p->original_max / p->low_freq_factor);
    float high_wavelen = (float)(p->original_max / p->high_freq_factor);
    for (int32_t i = 0; i < n; i++) {
        float f = inv_freq[i], wavelen = (1.0f / f) * (float)(2 * M_PI);
        float smooth = ((1.0f / wavelen) * (float)p->original_max - (float)p->low_freq_factor) /
                       (float)(p->high_freq_factor - p->low_freq_factor);
        if (wavelen > low_wavelen)
            inv_freq[i] = f / (float)p->factor;
        else if (!(wavelen < high_wavelen))
            inv_freq[i] = (1.0f - smooth) * f / (float)p->factor + smooth * f;
    }
}

// The index of the frequency that turns `rotations` times within the trained length.
static double yarn_index(double rotations, int32_t rot_dim, const struct rope_params *p) {
    return rot_dim * log(p->original_max / (rotations * 2 * M_PI)) / (2 * log(p->theta));
}

static double yarn_mscale(double factor, double mscale) {
    return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static void scale_yarn(float *inv_freq, int32_t rot_dim, const struct rope_params *p) {
    double low = yarn_index(p->beta_fast, rot_dim, p), high = yarn_index(p->beta_slow, rot_dim, p);
    if (p->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    if (low < 0) low = 0;
    if (high > rot_dim - 1) high = rot_dim - 1;
    if (low == high) high += 0.001;
    for (int32_t i = 0; i < rot_dim / 2; i++) {
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        float extrapolate = 1.0f - ramp;
        float pos_freq = power((float)p->theta, (float)(2 * i) / (float)rot_dim);
        float far = 1.0f / ((float)p->factor * pos_freq), near = inv_freq[i];
        inv_freq[i] = far * (1.0f - extrapolate) + near * extrapolate;
    }
}

static int read_yarn(const struct model_config *c, struct rope *out, struct rope_params *p,
                     struct err *err) {
    if (p->original_max == 0) p->original_max = c->max_positions;
    if (p->factor == 0) p->factor = c->max_positions / p->original_max;
    if (p->beta_fast == 0) p->beta_fast = 32;
    if (p->beta_slow == 0) p->beta_slow = 1;
    if (p->theta <= 1)
        return err_set(err, E_FORMAT, "rotary scaling 'yarn' needs 'rope_theta' above 1");
    double scale = p->attention_factor;
    if (scale == 0) {
        scale = yarn_mscale(p->factor, 1);
        if (p->mscale != 0 && p->mscale_all_dim != 0)
            scale = yarn_mscale(p->factor, p->mscale) / yarn_mscale(p->factor, p->mscale_all_dim);
    }
    out->scale = (float)scale;
    scale_yarn(out->inv_freq, out->rot_dim, p);
    return 0;
}

static int read_llama3(struct rope *out, const struct rope_params *p, struct err *err) {
    TRY(require(p->factor, p->type, "factor", err));
    TRY(require(p->original_max, p->type, "original_max_position_embeddings", err));
    TRY(require(p->low_freq_factor, p->type, "low_freq_factor", err));
    if (!(p->high_freq_factor > p->low_freq_factor))
        return err_set(err, E_FORMAT,
                       "rotary scaling 'llama3' needs 'high_freq_factor' above "
                       "'low_freq_factor'");
    scale_llama3(out->inv_freq, out->rot_dim / 2, p);
    return 0;
}

// longrope's divisors, one for each pair, make out (rot_dim / 2).
static int divide(float *out, int32_t rot_dim, double theta, const cJSON *list, const char *name,
                  struct err *err) {
    const cJSON *item;
    int32_t n = 0;
    if (!list || cJSON_GetArraySize(list) != rot_dim / 2)
        return err_set(err, E_FORMAT, "rotary scaling 'longrope' needs %d numbers in '%s'",
                       rot_dim / 2, name);
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsNumber(item) || !(item->valuedouble > 1e-6 && item->valuedouble < 1e6))
            return err_set(err, E_FORMAT, "'%s' holds no divisor at %d", name, n);
        const float wavelength = power((float)theta, (float)(2 * n) / (float)rot_dim);
        out[n++] = 1.0f / ((float)item->valuedouble * wavelength);
    }
    return 0;
}

// Phi-3: divisors for texts up to the original length and beyond it. transformers changes from one set to the other
// within a text, which makes the keys so far wrong; here a session has the set that its session_len asks for.
static int read_longrope(const struct model_config *c, struct rope *out,
                         const struct rope_params *p, struct err *err) {
    const double original = p->original_max;
    TRY(require(original, p->type, "original_max_position_embeddings", err));
    const size_t bytes = (size_t)out->rot_dim / 2 * sizeof *out->inv_freq;
    const bool longer = c->max_positions > original;
    if (longer)
        TRY(divide(out->inv_freq, out->rot_dim, p->theta, p->long_factor, "long_factor", err));
    TRY(divide(out->short_inv_freq, out->rot_dim, p->theta, p->short_factor, "short_factor", err));
    if (!longer) memcpy(out->inv_freq, out->short_inv_freq, bytes);
    const bool differs = memcmp(out->inv_freq, out->short_inv_freq, bytes) != 0;
    out->short_len = differs ? (int64_t)original : 0;
    double factor = p->factor != 0 ? p->factor : c->max_positions / original;
    double scale = factor <= 1 ? 1 : sqrt(1 + log(factor) / log(original));
    out->scale = (float)(p->attention_factor != 0 ? p->attention_factor : scale);
    return 0;
}

// Gemma 4: the exponents are those of the whole head, of which the first pairs turn and the others do not.
static void scale_proportional(struct rope *out, const struct rope_params *p) {
    const int32_t turning = (int32_t)(out->rot_dim * p->part / 2);
    for (int32_t i = 0; i < out->rot_dim / 2; i++)
        out->inv_freq[i] =
            i < turning ? out->inv_freq[i] / (float)(p->factor != 0 ? p->factor : 1) : 0;
}

// Up to the trained length theta stays as it is; Hunyuan scales it once and for all.
static int read_dynamic(struct rope_params *p, int32_t rot_dim, struct err *err) {
    TRY(require(p->factor, p->type, "factor", err));
    if (rot_dim <= 2) return err_set(err, E_FORMAT, "rotary scaling 'dynamic' of width 2");
    if (p->alpha != 0) p->theta *= pow(p->alpha, rot_dim / (double)(rot_dim - 2));
    return 0;
}

static int check_width(const struct rope *out, struct err *err) {
    if (out->rot_dim >= 2 && out->rot_dim % 2 == 0 && out->rot_dim <= MODEL_MAX_ROT) return 0;
    return err_set(err, E_UNSUPPORTED,
                   "rotary positions need an even width up to %d of each head, not %d",
                   MODEL_MAX_ROT, out->rot_dim);
}

static void set_inv_freq(struct rope *out, double theta) {
    for (int32_t i = 0; i < out->rot_dim / 2; i++)
        out->inv_freq[i] = 1.0f / power((float)theta, (float)(2 * i) / (float)out->rot_dim);
}

int rope_plain(struct rope *out, struct err *err) {
    TRY(check_width(out, err));
    out->scale = 1;
    set_inv_freq(out, 10000);
    return 0;
}

enum scaling { PLAIN, LINEAR, LLAMA3, YARN, LONGROPE, DYNAMIC, PROPORTIONAL };

static int find_scaling(const char *type, enum scaling *out, struct err *err) {
    static const struct {
        const char *type;
        enum scaling scaling;
    } known[] = {{"default", PLAIN}, {"mrope", PLAIN},     {"linear", LINEAR},
                 {"llama3", LLAMA3}, {"yarn", YARN},       {"longrope", LONGROPE},
                 {"su", LONGROPE},   {"dynamic", DYNAMIC}, {"proportional", PROPORTIONAL}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(type, known[i].type) != 0) continue;
        *out = known[i].scaling;
        return 0;
    }
    return err_set(err, E_UNSUPPORTED,
                   "rotary scaling '%.60s'; known are default, linear, llama3, yarn, longrope, "
                   "dynamic, proportional",
                   type);
}

static int read_rope(const struct model_config *c, struct rope *out, const struct rope_request *r,
                     const cJSON *json, const cJSON *otherwise, struct attention_config *queries,
                     struct err *err) {
    struct rope_params p;
    enum scaling scaling = PLAIN;
    TRY(read_spellings(&p, r, json, otherwise, err));
    TRY(find_scaling(p.type, &scaling, err));
    out->rot_dim = (int32_t)(r->head_dim * (scaling == PROPORTIONAL ? 1 : p.part));
    TRY(check_width(out, err));
    out->scale = 1;
    if (scaling != LONGROPE && (p.long_factor || p.short_factor))
        return err_set(err, E_UNSUPPORTED, "rotary scaling '%s' knows no '%s'", p.type,
                       p.long_factor ? "long_factor" : "short_factor");
    if (scaling != DYNAMIC && p.alpha != 0)
        return err_set(err, E_UNSUPPORTED, "rotary scaling '%s' knows no 'alpha'", p.type);
    if (p.original_max == 0 && scaling == LONGROPE)
        TRY(json_get_double(json, "original_max_position_embeddings", 1, INT32_MAX, &p.original_max,
                            err));
    if (scaling == LINEAR) TRY(require(p.factor, p.type, "factor", err));
    if (scaling == DYNAMIC) TRY(read_dynamic(&p, out->rot_dim, err));
    set_inv_freq(out, p.theta);
    if (scaling == LINEAR)
        for (int32_t i = 0; i < out->rot_dim / 2; i++) out->inv_freq[i] /= (float)p.factor;
    if (scaling == PROPORTIONAL) scale_proportional(out, &p);
    if (scaling == YARN) TRY(read_yarn(c, out, &p, err));
    if (scaling == LLAMA3) TRY(read_llama3(out, &p, err));
    if (scaling == LONGROPE) TRY(read_longrope(c, out, &p, err));
    if (p.query_beta == 0) return 0;
    if (!queries) return err_set(err, E_UNSUPPORTED, "'llama_4_scaling_beta' in this family");
    TRY(require(p.original_max, "llama_4_scaling_beta", "original_max_position_embeddings", err));
    queries->query_beta = (float)p.query_beta;
    queries->query_length = (float)p.original_max;
    return 0;
}

int rope_read(const struct model_config *c, struct rope *out, const struct rope_request *r,
              const cJSON *json, struct attention_config *queries, struct err *err) {
    cJSON *otherwise;
    TRY(rope_default(r->ropes, json, &otherwise, err));
    const int rc = read_rope(c, out, r, json, otherwise, queries, err);
    cJSON_Delete(otherwise);
    return rc;
}
