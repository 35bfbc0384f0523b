// SHA-256 of switches and sampled weights, truncated to 128 bits. See fingerprint.h.
#include "engine/model/fingerprint.h"
#include <openssl/evp.h>
#include <stdio.h>

// 16 samples spread over a tensor notice any fine-tune; a small tensor (norms, biases) is taken
// whole.
#define N_SAMPLES 16
#define SAMPLE_BYTES 256

static bool feed(EVP_MD_CTX *h, const void *bytes, size_t n) {
    return EVP_DigestUpdate(h, bytes, n) == 1;
}

// One width and byte order for every number, so that struct layout and padding do not matter.
static bool feed_i64(EVP_MD_CTX *h, int64_t v) {
    unsigned char le[8];
    for (int i = 0; i < 8; i++) le[i] = (unsigned char)((uint64_t)v >> (8 * i));
    return feed(h, le, sizeof le);
}

static bool feed_f32(EVP_MD_CTX *h, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return feed_i64(h, bits);
}

// The first layer with a window; n_layers: none.
static int32_t first_windowed(const struct model_config *c) {
    int32_t i = 0;
    while (i < c->n_layers && !model_layer(c, i)->attention.window) i++;
    return i;
}

// Whether the switches of the first and last layer describe all layers: as one row, or with a window from
// some layer on.
static bool is_plain(const struct model_config *c) {
    struct layer_config row = c->kinds[0], last = *model_layer(c, c->n_layers - 1);
    bool same = true;
    last.attention.window = row.attention.window = 0;
    for (int32_t i = first_windowed(c); i < c->n_layers; i++)
        same = same && model_layer(c, i)->attention.window > 0;
    return same && c->n_kinds <= 2 && memcmp(&row, &last, sizeof row) == 0 && c->n_ropes <= 1 &&
           !(row.norms & NORM_OUT) && !c->norm_plus_one && model_config_features(c) == 0;
}

// All that a row says, and which layers have it.
static bool feed_layers(EVP_MD_CTX *h, const struct model_config *c) {
    bool ok = feed(h, "layers", 6) && feed(h, c->kind_of, (size_t)c->n_layers);
    for (int32_t i = 0; ok && i < c->n_kinds; i++) {
        const struct layer_config *row = &c->kinds[i];
        const struct attention_config *a = &row->attention;
        const int64_t numbers[] = {
            a->n_heads,      a->n_kv_heads,    a->head_dim,        a->window,
            a->rope,         a->qk_norm,       a->v_norm,          a->v_is_k,
            a->kv_from,      a->qkv_bias,      a->o_bias,          a->qk_norm_after_rope,
            row->feed.width, row->feed.bias,   row->feed.xielu,    row->norms,
            row->parallel,   row->shared_norm, row->output_scalar,
        };
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            ok = ok && feed_i64(h, numbers[k]);
        ok = ok && feed_f32(h, a->scale) && feed_f32(h, a->soft_cap) &&
             feed_f32(h, a->query_beta) && feed_f32(h, a->query_length) &&
             feed_f32(h, row->residual_scale);
        if (a->clip != 0) ok = ok && feed(h, "clip", 4) && feed_f32(h, a->clip);
        if (a->kv_rank)
            ok = ok && feed_i64(h, a->q_rank) && feed_i64(h, a->kv_rank) &&
                 feed_i64(h, a->nope_dim) && feed_i64(h, a->rope_dim) &&
                 feed_i64(h, a->v_head_dim) && feed_f32(h, a->latent_eps);
    }
    for (int32_t i = 1; i < c->n_ropes; i++) {
        const struct rope *r = &c->ropes[i];
        ok = ok && feed_i64(h, r->rot_dim) && feed_i64(h, r->style) && feed_f32(h, r->scale);
        for (int32_t k = 0; k < r->rot_dim / 2; k++) ok = ok && feed_f32(h, r->inv_freq[k]);
    }
    return ok && feed_i64(h, c->norm_plus_one) && feed_i64(h, c->per_layer_width) &&
           feed_f32(h, c->logit_scale) && feed_f32(h, c->logit_soft_cap);
}

static bool feed_short_rope(EVP_MD_CTX *h, const struct rope *r) {
    bool ok = feed_i64(h, r->short_len);
    for (int32_t i = 0; i < r->rot_dim / 2; i++) ok = ok && feed_f32(h, r->short_inv_freq[i]);
    return ok;
}

static bool feed_experts(EVP_MD_CTX *h, const struct layer_config *row) {
    const struct experts_config *x = &row->feed.experts;
    const int64_t numbers[] = {
        x->n_experts,         x->n_chosen,     x->width,    x->router,
        x->router_bias,       x->choice_bias,  x->n_groups, x->n_chosen_groups,
        x->group_best,        x->shared_width, x->bias,     x->normalised,
        row->attention.window};
    bool ok = true;
    if (x->beside) ok = feed(h, "beside", 6);
    for (size_t i = 0; x->n_experts && i < sizeof numbers / sizeof *numbers; i++)
        ok = ok && feed_i64(h, numbers[i]);
    return x->n_experts ? ok && feed_f32(h, x->factor) && feed_f32(h, x->limit) : true;
}

// Models of one kind of layer, or with windows from one layer on, have had fingerprints since before
// layers were rows: they are described by the switches of their first and last layer.
static bool feed_config(EVP_MD_CTX *h, const struct model_config *c) {
    const struct layer_config *row = &c->kinds[0];
    const struct attention_config *a = &row->attention;
    const int32_t window = model_layer(c, c->n_layers - 1)->attention.window;
    const int64_t numbers[] = {
        c->n_layers,
        c->width,
        a->n_heads,
        a->n_kv_heads,
        a->head_dim,
        row->feed.width,
        c->vocab_size,
        c->norm,
        row->norms == NORM_POST,
        c->norm_bias,
        c->embed_norm,
        c->final_norm,
        a->qk_norm,
        c->positions,
        c->position_offset,
        c->ropes[0].style,
        c->ropes[0].rot_dim,
        row->feed.activation,
        row->feed.gated,
        a->qkv_bias,
        a->o_bias,
        row->feed.bias,
        c->head_bias,
        row->parallel,
        row->shared_norm,
        c->embed_width,
        c->tied_head,
        window,
        window ? first_windowed(c) : 0,
    };
    bool ok = feed(h, c->family, sizeof c->family);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        ok = ok && feed_i64(h, numbers[i]);
    for (int32_t i = 0; i < c->ropes[0].rot_dim / 2; i++)
        ok = ok && feed_f32(h, c->ropes[0].inv_freq[i]);
    // Switches that came later count when they are on, so that older models keep their
    // fingerprints.
    if (a->scale_by_layer) ok = ok && feed(h, "scale_by_layer", 14);
    if (c->int8) ok = ok && feed(h, "int8", 4);
    if (c->fp8) ok = ok && feed(h, "fp8", 3);
    for (int32_t i = 0; i < c->n_kinds; i++) ok = ok && feed_experts(h, &c->kinds[i]);
    for (int32_t i = 0; i < c->n_ropes; i++)
        if (c->ropes[i].short_len > 0) ok = ok && feed_short_rope(h, &c->ropes[i]);
    if (row->normed_residual) ok = ok && feed(h, "normed_residual", 15);
    if (!is_plain(c)) ok = ok && feed_layers(h, c);
    return ok && feed_f32(h, c->ropes[0].scale) && feed_f32(h, c->norm_eps) &&
           feed_f32(h, c->embed_scale) && feed_f32(h, a->scale);
}

static int feed_tensor(EVP_MD_CTX *h, const struct checkpoint *cp, const struct tensor *t,
                       struct err *err) {
    unsigned char sample[N_SAMPLES * SAMPLE_BYTES];
    bool ok =
        feed(h, t->name, strlen(t->name) + 1) && feed_i64(h, t->dtype) && feed_i64(h, t->n_dims);
    for (int d = 0; d < t->n_dims; d++) ok = ok && feed_i64(h, t->shape[d]);
    size_t n = t->bytes < sizeof sample ? t->bytes : sizeof sample;
    if (n < sizeof sample) {
        TRY(checkpoint_read(cp, t, 0, sample, n, err));
    } else {
        size_t last = t->bytes - SAMPLE_BYTES;
        for (size_t i = 0; i < N_SAMPLES; i++)
            TRY(checkpoint_read(cp, t, last / (N_SAMPLES - 1) * i, sample + i * SAMPLE_BYTES,
                                SAMPLE_BYTES, err));
    }
    if (!ok || !feed(h, sample, n)) return err_set(err, E_INTERNAL, "SHA-256 failed");
    return 0;
}

int fingerprint_compute(char out[FINGERPRINT_LEN + 1], const struct model_config *c,
                        const struct checkpoint *cp, struct err *err) {
    int rc = 0;
    unsigned char digest[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *h = EVP_MD_CTX_new();
    if (!h || EVP_DigestInit_ex(h, EVP_sha256(), NULL) != 1 || !feed_config(h, c)) {
        rc = err_set(err, E_NOMEM, "cannot set up SHA-256");
        goto done;
    }
    for (size_t i = 0; i < checkpoint_count(cp); i++)
        TRY_GOTO(done, feed_tensor(h, cp, checkpoint_at(cp, i), err));
    if (EVP_DigestFinal_ex(h, digest, NULL) != 1) {
        rc = err_set(err, E_INTERNAL, "SHA-256 failed");
        goto done;
    }
    for (int i = 0; i < FINGERPRINT_LEN / 2; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
    // An unchanged folder has the fingerprint of its source; a changed one keeps its own.
    if (c->quantized_own[0] && strcmp(out, c->quantized_own) == 0) strcpy(out, c->quantized_of);
done:
    EVP_MD_CTX_free(h);
    return rc;
}
