// Switches from config.ini: as each converter of FasterTransformer writes it, and refusals.
#include "engine/model/ft_config.h"
#include "tests/unit/tmp_dir.h"

#define SHAPE "head_num=12\nsize_per_head=64\ninter_size=3072\nnum_layer=12\nvocab_size=50257\n"

static int parse(struct ft_config *c, const char *text, struct err *err) {
    memset(err, 0, sizeof *err);
    return ft_config_parse(c, "config.ini", text, strlen(text), err);
}
static struct ft_config parse_ok(const char *text) {
    struct ft_config c;
    struct err err;
    if (parse(&c, text, &err) < 0) fail_msg("%s", err.text);
    return c;
}

static void reads_gpt2s(void **state) {
    struct ft_config c = parse_ok("[gpt]\nmodel_name = gpt2\n" SHAPE
                                  "max_pos_seq_len = 1024\nstart_id = 50256\nend_id = 50256\n"
                                  "weight_data_type = fp16\ntensor_para_size = 4\n");
    const struct model_config *m = &c.model;
    assert_string_equal(m->family, "gpt");
    assert_int_equal(m->format, FORMAT_FASTERTRANSFORMER);
    assert_int_equal(m->width, 768);
    assert_int_equal(m->embed_width, 768);
    assert_int_equal(m->kinds[0].attention.n_kv_heads, 12);
    assert_int_equal(m->kinds[0].attention.head_dim, 64);
    assert_int_equal(m->kinds[0].feed.width, 3072);
    assert_int_equal(m->n_layers, 12);
    assert_int_equal(m->vocab_size, 50257);
    assert_int_equal(m->max_positions, 1024);
    assert_int_equal(m->dtype, DTYPE_F16);
    assert_int_equal(m->norm, NORM_LAYER);
    assert_int_equal(m->kinds[0].norms, NORM_PRE);
    assert_true(m->norm_eps == 1e-5f); // not FasterTransformer's 1e-6
    assert_int_equal(m->positions, POSITION_LEARNED);
    assert_int_equal(m->kinds[0].feed.activation, ACT_GELU_TANH);
    assert_true(m->kinds[0].attention.qkv_bias && m->kinds[0].attention.o_bias &&
                m->kinds[0].feed.bias && m->norm_bias && m->final_norm);
    assert_false(m->embed_norm || m->head_bias || m->kinds[0].parallel || m->kinds[0].feed.gated);
    assert_true(m->kinds[0].attention.scale == 0.125f && m->embed_scale == 1);
    assert_int_equal(m->bos_id, 50256);
    assert_int_equal(m->n_eos, 1);
    assert_int_equal(m->eos_ids[0], 50256);
    assert_true(m->temperature < 0 && m->top_k < 0);
    assert_int_equal(c.n_ranks, 4);
    assert_false(c.head_transposed);
    assert_int_equal(c.n_unused, 0);
}

static void reads_opts(void **state) {
    struct ft_config c = parse_ok("[gpt]\n" SHAPE "max_pos_seq_len = 2048\nlayernorm_eps = 1e-5\n"
                                  "layernorm_type = post_layernorm\nactivation_type = Relu\n"
                                  "has_post_decoder_layernorm = 0\nstart_id = 2\nend_id = 2\n"
                                  "weight_data_type = fp32\nint8 = False\n");
    assert_int_equal(c.model.kinds[0].norms, NORM_POST);
    assert_int_equal(c.model.kinds[0].feed.activation, ACT_RELU);
    assert_false(c.model.final_norm || c.model.kinds[0].normed_residual);
    assert_int_equal(c.model.position_offset, 0);
    assert_int_equal(c.n_ranks, 0);
    assert_int_equal(c.n_unused, 0);
}

static void reads_blooms(void **state) {
    struct ft_config c = parse_ok("[gpt]\n" SHAPE "tensor_para_size=2\nweight_data_type=bf16\n"
                                  "model_variant=bloom-pre\nlayernorm_eps=1e-05\n"
                                  "layernorm_type=pre_layernorm\nactivation_type=Gelu\n"
                                  "has_positional_encoding=False\nhas_pre_decoder_layernorm=True\n"
                                  "has_post_decoder_layernorm=True\n"
                                  "use_attention_linear_bias=True\nstart_id=1\nend_id=2\n");
    assert_int_equal(c.model.positions, POSITION_ALIBI);
    assert_int_equal(c.model.max_positions, 2048);
    assert_int_equal(c.model.dtype, DTYPE_BF16);
    assert_true(c.model.embed_norm && c.head_transposed);
    assert_false(c.model.kinds[0].normed_residual);
}

static void reads_megatrons(void **state) {
    struct ft_config c =
        parse_ok("[gpt]\nmodel_name = gpt\nhead_num = 16\nsize_per_head = 64\ninter_size = 4096\n"
                 "num_layer = 24\nmax_pos_seq_len = 1024\nvocab_size = 50304\n"
                 "has_adapters = False\nadapter_inter_size = 0\nlayernorm_eps = 1e-06\n"
                 "start_id = 50256\nend_id = 50256\nweight_data_type = fp32\n"
                 "tensor_para_size = 8\nsomething_new = 1\n");
    assert_true(c.model.norm_eps == 1e-6f); // the written value counts
    assert_int_equal(c.n_unused, 1);
    assert_string_equal(c.unused, "something_new");
}

static void reads_gptjs(void **state) {
    struct ft_config c =
        parse_ok("[gptj]\nmodel_name = gptj-6B\nhead_num = 16\nsize_per_head = 256\n"
                 "inter_size = 16384\nnum_layer = 28\nrotary_embedding = 64\n"
                 "vocab_size = 50400\nstart_id = 50256\nend_id = 50256\n"
                 "weight_data_type = fp32\n");
    const struct model_config *m = &c.model;
    assert_string_equal(m->family, "gptj");
    assert_int_equal(m->width, 4096);
    assert_int_equal(m->positions, POSITION_ROTARY);
    assert_int_equal(m->ropes[0].style, ROPE_INTERLEAVED);
    assert_int_equal(m->ropes[0].rot_dim, 64);
    assert_true(m->ropes[0].inv_freq[0] == 1 && m->ropes[0].scale == 1);
    assert_true(m->kinds[0].parallel && m->kinds[0].shared_norm && m->head_bias &&
                m->kinds[0].feed.bias);
    assert_false(m->kinds[0].attention.qkv_bias || m->kinds[0].attention.o_bias || m->tied_head);
    assert_true(m->norm_eps == 1e-5f);
    assert_int_equal(m->max_positions, 2048);
}

static void reads_gptneox(void **state) {
    struct ft_config c = parse_ok("[gptneox]\n" SHAPE "rotary_embedding = 2\n");
    const struct model_config *m = &c.model;
    assert_string_equal(m->family, "gpt_neox");
    assert_int_equal(m->ropes[0].style, ROPE_HALF);
    assert_true(m->kinds[0].parallel && m->kinds[0].attention.qkv_bias && m->kinds[0].feed.bias);
    assert_false(m->kinds[0].shared_norm || m->kinds[0].attention.o_bias || m->head_bias);
    c = parse_ok("[gptneox]\n" SHAPE "rotary_embedding = 2\nuse_gptj_residual = 0\n");
    assert_true(!c.model.kinds[0].parallel && c.model.kinds[0].attention.o_bias);
}

static void tokens_may_be_none(void **state) {
    struct ft_config c =
        parse_ok("[gpt]\n" SHAPE "max_pos_seq_len=9\nstart_id = None\nend_id = -1\n");
    assert_int_equal(c.model.bos_id, -1);
    assert_int_equal(c.model.n_eos, 0);
    c = parse_ok("[gpt]\n" SHAPE "max_pos_seq_len=9\n");
    assert_int_equal(c.model.bos_id, -1);
    assert_int_equal(c.model.dtype, DTYPE_F32);
}

static void refuses_by_name(void **state) {
    static const struct {
        const char *text;
        int code;
        const char *names;
    } cases[] = {
        {"", E_UNSUPPORTED, "none of [gpt], [gptj], [gptneox]; it has no section"},
        {"[t5]\nhead_num=1\n[task_0]\n", E_UNSUPPORTED, "it has [t5] [task_0]"},
        {"[gptj]\n[gptneox]\n", E_FORMAT, "both [gptj] and [gptneox]"},
        {"[gptneox]\n" SHAPE, E_FORMAT, "'rotary_embedding' is missing in [gptneox]"},
        {"[gpt]\n[gptj]\n", E_FORMAT, "both [gpt] and [gptj]"},
        {"[gpt]\n", E_FORMAT, "'head_num' is missing in [gpt]"},
        {"[gpt]\n" SHAPE, E_FORMAT, "'max_pos_seq_len' is missing"},
        {"[gptj]\n" SHAPE, E_FORMAT, "'rotary_embedding' is missing in [gptj]"},
        {"[gptj]\n" SHAPE "rotary_embedding=65\n", E_FORMAT, "rotary_embedding"},
        {"[gptj]\n" SHAPE "rotary_embedding=7\n", E_UNSUPPORTED, "even width"},
        {"[gpt]\nhead_num=0\n", E_FORMAT, "'head_num' is '0'"},
        {"[gpt]\nhead_num=-12\n", E_FORMAT, "'head_num' is '-12'"},
        {"[gpt]\nhead_num=65537\n", E_FORMAT, "from 1 to 65536"},
        {"[gpt]\nhead_num=65536\nsize_per_head=1024\ninter_size=4\nnum_layer=1\nvocab_size=9\n",
         E_LIMIT, "'head_num' 65536 times 'size_per_head' 1024"},
        {"[gpt]\nhead_num=1\nsize_per_head=2\ninter_size=4\nnum_layer=4097\n", E_FORMAT,
         "'num_layer'"},
        {"[gpt]\n" SHAPE "max_pos_seq_len=4294967296\n", E_FORMAT, "'max_pos_seq_len'"},
        {"[gpt]\n" SHAPE "max_pos_seq_len=9\nend_id=50257\n", E_FORMAT, "'end_id' is '50257'"},
        {"[gpt]\n" SHAPE "weight_data_type=int8\n", E_UNSUPPORTED, "known are fp32, fp16, bf16"},
        {"[gpt]\n" SHAPE "layernorm_eps=0\n", E_FORMAT, "'layernorm_eps'"},
        {"[gpt]\n" SHAPE "tensor_para_size=0\n", E_FORMAT, "'tensor_para_size'"},
        {"[gpt]\n" SHAPE "tensor_para_size=100000\n", E_FORMAT, "'tensor_para_size'"},
        {"[gpt]\n" SHAPE "max_pos_seq_len=9\nactivation_type=GeGLU\n", E_UNSUPPORTED,
         "'activation_type' is 'GeGLU'"},
        {"[gpt]\n" SHAPE "max_pos_seq_len=9\nlayernorm_type=sandwich\n", E_UNSUPPORTED,
         "'layernorm_type'"},
        {"[gpt]\n" SHAPE "max_pos_seq_len=9\nuse_attention_linear_bias=1\n", E_UNSUPPORTED,
         "both on"},
        {"[gpt]\n" SHAPE "has_positional_encoding=0\n", E_UNSUPPORTED, "both off"},
        {"[gpt]\n" SHAPE "has_positional_encoding=maybe\n", E_FORMAT, "not true or false"},
        {"[gpt]\n" SHAPE "has_adapters=True\n", E_UNSUPPORTED, "'has_adapters'"},
        {"[gpt]\n" SHAPE "[structure]\ngpt_with_moe=1\n", E_UNSUPPORTED, "'gpt_with_moe'"},
        {"[gpt]\n" SHAPE "expert_num=8\n", E_UNSUPPORTED, "'expert_num' 8"},
#define TASKS(type)                                                                                \
    "[gpt]\n" SHAPE "max_pos_seq_len=9\nnum_tasks=1\nprompt_learning_type=" type "\n"
        {TASKS("3"), E_FORMAT, "[task_0] is missing"},
        {TASKS("1"), E_UNSUPPORTED, "'prompt_learning_type' of 1"},
        {TASKS("4"), E_FORMAT, "'prompt_learning_type'"},
        {TASKS("3") "[task_0]\nprompt_length=3\n", E_FORMAT, "'task_name' is missing in [task_0]"},
        {TASKS("3") "[task_0]\ntask_name=../a\nprompt_length=3\n", E_FORMAT, "'task_name'"},
        {TASKS("3") "[task_0]\ntask_name=a\n", E_FORMAT, "'prompt_length' is missing in [task_0]"},
        {TASKS("3") "[task_0]\ntask_name=a\nprompt_length=0\n", E_FORMAT, "'prompt_length'"},
        {"[gpt]\n" SHAPE "max_pos_seq_len=9\nnum_tasks=65\n", E_FORMAT, "'num_tasks'"},
#undef TASKS
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ft_config c;
        struct err err;
        int rc = parse(&c, cases[i].text, &err);
        if (rc != cases[i].code || !strstr(err.text, cases[i].names) ||
            strncmp(err.text, "config.ini: ", 12) != 0)
            fail_msg("case %zu: %d, %s", i, rc, err.text);
    }
}

static void says_dtypes_and_activations(void **state) {
    enum dtype t;
    assert_int_equal(ft_dtype_find("bf16", &t), 0);
    assert_int_equal(t, DTYPE_BF16);
    assert_int_equal(ft_dtype_find("f16", &t), E_NOTFOUND);
    assert_string_equal(ft_dtype_name(DTYPE_F32), "fp32");
    assert_string_equal(ft_activation_name(ACT_SILU), "Silu");
    assert_null(ft_activation_name(ACT_GELU));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_gpt2s),
        cmocka_unit_test(reads_opts),
        cmocka_unit_test(reads_blooms),
        cmocka_unit_test(reads_megatrons),
        cmocka_unit_test(reads_gptjs),
        cmocka_unit_test(reads_gptneox),
        cmocka_unit_test(tokens_may_be_none),
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(says_dtypes_and_activations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
