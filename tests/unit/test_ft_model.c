// Loading a FasterTransformer folder, whole or by rank: every matrix and vector is that of the
// Hugging Face folder it was made from, however many ranks the files were written for.
#include "base/log.h"
#include "engine/model/model.h"
#include "tests/unit/fake_backend.h"
#include "tests/unit/ft_writer.h"

static int setup(void **state) {
    log_set_level(LOG_OFF);
    return 0;
}

static struct model *load(const char *dir, struct fake_backend *f, const struct split *s) {
    struct model *m = NULL;
    struct err err = {0};
    if (model_load(&m, &(struct model_load_options){.dir = dir, .backend = &f->be, .split = s},
                   &err) < 0)
        fail_msg("%s: %s", dir, err.text);
    return m;
}

static void same_weight(const struct weight *a, const struct weight *b) {
    assert_true(!a->data == !b->data);
    if (!a->data) return;
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->cols, b->cols);
    assert_memory_equal(a->data, b->data, (size_t)a->rows * (size_t)a->cols * sizeof(float));
}

static void same_vector(const float *a, const float *b, int32_t n) {
    assert_true(!a == !b);
    if (a) assert_memory_equal(a, b, (size_t)n * sizeof(float));
}

static void same_norm(const struct norm_weights *a, const struct norm_weights *b, int32_t n) {
    same_vector(a->weight, b->weight, n);
    same_vector(a->bias, b->bias, n);
}

static void same_model(const struct model *a, const struct model *b) {
    const struct model_config *c = &a->config;
    assert_int_equal(a->n_layers, b->n_layers);
    assert_int_equal(a->first_layer, b->first_layer);
    same_weight(&a->embed, &b->embed);
    same_weight(&a->head, &b->head);
    assert_int_equal(a->head_is_embed, b->head_is_embed);
    same_vector(a->head_bias, b->head_bias, a->vocab_rows);
    same_norm(&a->embed_norm, &b->embed_norm, c->width);
    same_norm(&a->final_norm, &b->final_norm, c->width);
    same_vector(a->alibi_slopes, b->alibi_slopes, a->of_kind[0].n_heads);
    same_vector(a->inv_freq[0], b->inv_freq[0], c->ropes[0].rot_dim / 2);
    // OPT's table begins with two rows that the folder has not.
    int32_t skip = b->config.position_offset * c->width;
    assert_int_equal(c->position_offset, 0);
    same_vector(a->position_table, b->position_table ? b->position_table + skip : NULL,
                c->max_positions * c->width);
    for (int32_t i = 0; i < a->n_layers; i++) {
        const struct layer_weights *x = &a->layers[i], *y = &b->layers[i];
        same_norm(&x->attn_norm, &y->attn_norm, c->width);
        same_norm(&x->ffn_norm, &y->ffn_norm, c->width);
        same_weight(&x->qkv, &y->qkv);
        same_vector(x->qkv_bias, y->qkv_bias,
                    3 * a->of_kind[0].n_heads * c->kinds[0].attention.head_dim);
        same_weight(&x->o, &y->o);
        const bool sums = c->kinds[0].parallel && !c->kinds[0].shared_norm; // GPT-NeoX
        assert_true(!sums || !x->o_bias);
        if (!sums) same_vector(x->o_bias, y->o_bias, c->width);
        same_weight(&x->up, &y->up);
        same_vector(x->up_bias, y->up_bias, a->of_kind[0].ffn_width);
        same_weight(&x->down, &y->down);
        for (int32_t k = 0; k < c->width && x->down_bias && sums; k++)
            assert_true(x->down_bias[k] == y->o_bias[k] + y->down_bias[k]);
        if (!sums) same_vector(x->down_bias, y->down_bias, c->width);
    }
}

static void every_rank_has_its_slices(void **state) {
    static const struct split splits[] = {
        {0, 1, 0, 1}, {0, 2, 0, 1}, {1, 2, 0, 1}, {3, 4, 0, 1}, {0, 1, 1, 3}, {1, 2, 2, 3},
    };
    char source[100];
    snprintf(source, sizeof source, "tests/fixtures/models/%s", (const char *)*state);
    const int most = strcmp(*state, "gpt_neox") == 0 ? 1 : 4; // see refuses_ranks_of_gptneox
    for (int n = 1; n <= most; n *= 2) {
        struct ft_writer w;
        ft_writer_open(&w, *state, n, true);
        for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
            struct fake_backend f = fake_backend(), g = fake_backend();
            struct model *ft = load(w.folder, &f, &splits[i]);
            struct model *hf = load(source, &g, &splits[i]);
            same_model(ft, hf);
            model_free(ft);
            model_free(hf);
            assert_int_equal(f.n_live, 0);
        }
        ft_writer_close(&w);
    }
}

// Their biases are divided among the ranks, and not alike in all layers.
static void refuses_ranks_of_gptneox(void **state) {
    struct ft_writer w;
    struct fake_backend f = fake_backend();
    struct model *m = NULL;
    struct err err = {0};
    ft_writer_open(&w, "gpt_neox", 2, true);
    const struct model_load_options o = {.dir = w.folder, .backend = &f.be, .split = &split_single};
    assert_int_equal(model_load(&m, &o, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "GPT-NeoX of 2 ranks"));
    ft_writer_close(&w);
}

// Whatever fails while a folder is loaded, all memory is freed.
static void failures_give_all_back(void **state) {
    struct ft_writer w;
    ft_writer_open(&w, "bloom", 2, true);
    for (int n = 1;; n++) {
        struct fake_backend f = fake_backend();
        struct model *m = NULL;
        struct err err = {0};
        f.fail_at = n;
        int rc = model_load(
            &m,
            &(struct model_load_options){.dir = w.folder, .backend = &f.be, .split = &split_single},
            &err);
        if (rc == 0) {
            assert_true(n > 20);
            model_free(m);
            break;
        }
        assert_true(rc == E_NOMEM || rc == E_DEVICE);
        assert_int_equal(f.n_live, 0);
    }
    ft_writer_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_rank_has_its_slices, (void *)"gpt2"),
        cmocka_unit_test_prestate(every_rank_has_its_slices, (void *)"opt"),
        cmocka_unit_test_prestate(every_rank_has_its_slices, (void *)"bloom"),
        cmocka_unit_test_prestate(every_rank_has_its_slices, (void *)"gptj"),
        cmocka_unit_test_prestate(every_rank_has_its_slices, (void *)"gpt_neox"),
        cmocka_unit_test(refuses_ranks_of_gptneox),
        cmocka_unit_test(failures_give_all_back),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
