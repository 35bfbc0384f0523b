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
    "finetuned", // written by early yarn models; transformers ignores it
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
static int read_params(struct rope_params *p, double part, const cJSON *dict, const cJSON *json,
                       struct err *err) {
    *p = (struct rope_params){
        .type = "default", .theta = 10000, .truncate = true, .part = part != 0 ? part : 1};
    TRY(json_get_double(json, "rope_theta", 1, 1e15, &p->theta, err));
    TRY(read_part(p, part, json, err));
    if (!dict) return 0;
    TRY(check_keys(dict, err));
    TRY(read_part(p, part, dict, err));
    TRY(json_get_double(dict, "rope_theta", 1, 1e15, &p->theta, err));
    TRY(json_get_string(dict, "type", &p->type, err));
    TRY(json_get_string(dict, "rope_type", &p->type, err));
    TRY(json_get_double(dict, "factor", 1e-6, 1e6, &p->factor, err));
    TRY(json_get_double(dict, "low_freq_factor", 1e-6, 1e6, &p->low_freq_factor, err));
    TRY(json_get_double(dict, "high_freq_factor", 1e-6, 1e6, &p->high_freq_factor, err));
    TRY(json_get_double(dict, "original_max_position_embeddings", 1, INT32_MAX, &p->original_max,
                        err));
    TRY(json_get_double(dict, "attention_factor", 1e-6, 1e6, &p->attention_factor, err));
    TRY(json_get_double(dict, "beta_fast", 0, 1e6, &p->beta_fast, err));
    TRY(json_get_double(dict, "beta_slow", 0, 1e6, &p->beta_slow, err));
    TRY(json_get_double(dict, "mscale", 0, 1e6, &p->mscale, err));
    TRY(json_get_double(dict, "mscale_all_dim", 0, 1e6, &p->mscale_all_dim, err));
    TRY(json_get_bool(dict, "truncate", &p->truncate, err));
    return 0;
}

static bool same_params(const struct rope_params *a, const struct rope_params *b) {
    return strcmp(a->type, b->type) == 0 && a->part == b->part && a->theta == b->theta &&
           a->factor == b->factor && a->low_freq_factor == b->low_freq_factor &&
           a->high_freq_factor == b->high_freq_factor && a->original_max == b->original_max &&
           a->attention_factor == b->attention_factor && a->beta_fast == b->beta_fast &&
           a->beta_slow == b->beta_slow && a->mscale == b->mscale &&
           a->mscale_all_dim == b->mscale_all_dim && a->truncate == b->truncate;
}

// A file may carry both spellings, for old and new readers; then they must agree.
static int read_spellings(struct rope_params *p, double part, const cJSON *json, struct err *err) {
    const cJSON *v4 = NULL, *v5 = NULL;
    struct rope_params other;
    TRY(json_get_object(json, "rope_scaling", &v4, err));
    TRY(json_get_object(json, "rope_parameters", &v5, err));
    TRY(read_params(p, part, v5 ? v5 : v4, json, err));
    if (!v4 || !v5) return 0;
    TRY(read_params(&other, part, v4, json, err));
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

static int read_yarn(struct model_config *c, struct rope_params *p, struct err *err) {
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
    c->ropes[0].scale = (float)scale;
    return 0;
}

static int check_width(const struct model_config *c, struct err *err) {
    if (c->ropes[0].rot_dim >= 2 && c->ropes[0].rot_dim % 2 == 0 &&
        c->ropes[0].rot_dim <= MODEL_MAX_ROT)
        return 0;
    return err_set(err, E_UNSUPPORTED,
                   "rotary positions need an even width up to %d of each head, not %d",
                   MODEL_MAX_ROT, c->ropes[0].rot_dim);
}

static void set_inv_freq(struct model_config *c, double theta) {
    for (int32_t i = 0; i < c->ropes[0].rot_dim / 2; i++)
        c->ropes[0].inv_freq[i] =
            1.0f / power((float)theta, (float)(2 * i) / (float)c->ropes[0].rot_dim);
}

int rope_plain(struct model_config *c, struct err *err) {
    TRY(check_width(c, err));
    c->ropes[0].scale = 1;
    set_inv_freq(c, 10000);
    return 0;
}

int rope_read(struct model_config *c, double part, const cJSON *json, struct err *err) {
    struct rope_params p;
    TRY(read_spellings(&p, part, json, err));
    c->ropes[0].rot_dim = (int32_t)(c->kinds[0].attention.head_dim * p.part);
    TRY(check_width(c, err));
    bool linear = strcmp(p.type, "linear") == 0, llama3 = strcmp(p.type, "llama3") == 0;
    bool yarn = strcmp(p.type, "yarn") == 0;
    if (!linear && !llama3 && !yarn && strcmp(p.type, "default") != 0)
        return err_set(err, E_UNSUPPORTED,
                       "rotary scaling '%.60s'; known are default, linear, llama3, yarn", p.type);
    if (linear || llama3) TRY(require(p.factor, p.type, "factor", err));
    if (llama3) {
        TRY(require(p.original_max, p.type, "original_max_position_embeddings", err));
        TRY(require(p.low_freq_factor, p.type, "low_freq_factor", err));
        if (!(p.high_freq_factor > p.low_freq_factor))
            return err_set(err, E_FORMAT,
                           "rotary scaling 'llama3' needs 'high_freq_factor' above "
                           "'low_freq_factor'");
    }
    c->ropes[0].scale = 1;
    if (yarn) TRY(read_yarn(c, &p, err));

    int32_t n = c->ropes[0].rot_dim / 2;
    set_inv_freq(c, p.theta);
    if (yarn) scale_yarn(c->ropes[0].inv_freq, c->ropes[0].rot_dim, &p);
    if (linear)
        for (int32_t i = 0; i < n; i++) c->ropes[0].inv_freq[i] /= (float)p.factor;
    if (llama3) scale_llama3(c->ropes[0].inv_freq, n, &p);
    return 0;
}
