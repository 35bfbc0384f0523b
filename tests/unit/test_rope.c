// Rotary frequencies with every kind of scaling.
#include "tests/unit/model_config_fixture.h"

static void near(float got, double expected) {
    if (!(fabs(got - expected) <= 3e-7 * fabs(expected))) fail_msg("%.9g, not %.9g", got, expected);
}

static void close_to(float got, double expected) {
    if (!(fabs(got - expected) <= 2e-6 * expected)) fail_msg("%.9g, not %.9g", got, expected);
}

// Expected values: the published formulas in double precision.
static void rotary_frequencies(void **state) {
    struct model_config c;
    load_ok(&c, LLAMA(""));
    static const double plain[][2] = {
        {0, 1}, {1, 0.316227766}, {5, 0.00316227766}, {7, 0.000316227766}};
    for (int i = 0; i < 4; i++) near(c.ropes[0].inv_freq[(int)plain[i][0]], plain[i][1]);
    assert_true(c.ropes[0].inv_freq[8] == 0);

    load_ok(
        &c,
        LLAMA(",\"head_dim\":64,\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\","
              "\"factor\":32.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
              "\"original_max_position_embeddings\":8192}"));
    static const double llama3[][2] = {{0, 1.0},
                                       {10, 0.0165604401},
                                       {13, 0.00483942135},
                                       {14, 0.00321144599},
                                       {15, 0.00129054793},
                                       {16, 0.000429556797},
                                       {17, 9.7082878e-05},
                                       {18, 1.94616382e-05},
                                       {31, 9.41830673e-08}};
    // Within the transition the smoothing factor cancels, so F32 keeps fewer digits there.
    for (int i = 0; i < 9; i++)
        assert_true(fabs(c.ropes[0].inv_freq[(int)llama3[i][0]] - llama3[i][1]) <
                    2e-6 * llama3[i][1]);
    assert_true(c.ropes[0].scale == 1);

    load_ok(&c, LLAMA(",\"head_dim\":128,\"rope_parameters\":{\"rope_theta\":1000000.0,\"rope_"
                      "type\":\"yarn\","
                      "\"factor\":4.0,\"original_max_position_embeddings\":32768}"));
    static const double yarn[][2] = {{0, 1.0},
                                     {20, 0.0133352143},
                                     {30, 0.00106436098},
                                     {35, 0.000246258407},
                                     {40, 4.44569853e-05},
                                     {50, 5.13381257e-06},
                                     {63, 3.1023444e-07}};
    for (int i = 0; i < 7; i++)
        assert_true(fabs(c.ropes[0].inv_freq[(int)yarn[i][0]] - yarn[i][1]) < 2e-6 * yarn[i][1]);
    near(c.ropes[0].scale, 1.138629436111989);

    load_ok(&c,
            LLAMA(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"attention_factor\":0.5}"));
    assert_true(c.ropes[0].scale == 0.5f);
    load_ok(&c,
            LLAMA(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":0.707,"
                  "\"mscale_all_dim\":1.0,\"truncate\":false,\"beta_fast\":16,\"beta_slow\":2}"));
    near(c.ropes[0].scale, (0.1 * 0.707 * log(40) + 1) / (0.1 * log(40) + 1));
    static const double exact[] = {1,       0.316227766,    0.0683637127, 0.00454810827,
                                   0.00025, 7.90569415e-05, 2.5e-05,      7.90569415e-06};
    for (int i = 0; i < 8; i++)
        assert_true(fabs(c.ropes[0].inv_freq[i] - exact[i]) < 2e-6 * exact[i]);
}

// A part of each head: the scalings count in that part's width.
static void rotary_frequencies_of_a_part(void **state) {
    struct model_config c;
    load_ok(&c, NEOX(",\"rotary_pct\":0.5,\"rotary_emb_base\":500,"
                     "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}"));
    static const double yarn[] = {1, 0.132171408, 0.0111803399, 0.00236435402};
    for (int i = 0; i < 4; i++)
        assert_true(fabs(c.ropes[0].inv_freq[i] - yarn[i]) < 2e-6 * yarn[i]);
    assert_true(c.ropes[0].inv_freq[4] == 0);
    near(c.ropes[0].scale, 1.138629436111989);
}

// A config.json that mentions no rotary parameters means those of its class in transformers; null is a mention.
static void defaults_of_classes(void **state) {
#define BARE(type, more)                                                                           \
    "{\"model_type\":\"" type "\"," SHAPE ",\"head_dim\":128,\"num_local_experts\":4,"             \
    "\"num_experts_per_tok\":2" more "}"
    static const double gpt_oss[][2] = {
        {0, 1}, {17, 0.0403912409}, {30, 0.0010526021}, {63, 2.50977731e-07}};
    static const double apertus[][2] = {
        {0, 1}, {20, 0.00613417075}, {30, 6.00542578e-05}, {63, 1.34381961e-08}};
    static const double ministral3[][2] = {
        {0, 1}, {20, 0.0133352143}, {30, 0.000690702339}, {63, 7.755861e-08}};
    struct model_config c;
    load_ok(&c, BARE("mixtral", ""));
    near(c.ropes[0].inv_freq[32], 1e-3);
    load_ok(&c, BARE("gpt_oss", ""));
    near(c.ropes[0].scale, 0.1 * log(32) + 1);
    for (int i = 0; i < 4; i++) close_to(c.ropes[0].inv_freq[(int)gpt_oss[i][0]], gpt_oss[i][1]);
    load_ok(&c, BARE("apertus", ""));
    for (int i = 0; i < 4; i++) close_to(c.ropes[0].inv_freq[(int)apertus[i][0]], apertus[i][1]);
    load_ok(&c, BARE("ministral3", ""));
    assert_true(c.ropes[0].scale == 1);
    assert_true(c.kinds[0].attention.query_beta == 0.1f &&
                c.kinds[0].attention.query_length == 16384);
    for (int i = 0; i < 4; i++)
        close_to(c.ropes[0].inv_freq[(int)ministral3[i][0]], ministral3[i][1]);
    // As published, and as transformers 5; 4.57 had 10,000, but saved it.
    load_ok(&c, BARE("olmo3", ""));
    for (int i = 0; i < 2; i++)
        close_to(c.ropes[i].inv_freq[1], pow(500000, -2.0 / c.ropes[i].rot_dim));
    load_ok(&c, BARE("gpt_oss", ",\"rope_scaling\":null,\"rope_theta\":10000"));
    assert_true(c.ropes[0].scale == 1);
    near(c.ropes[0].inv_freq[32], 0.01);
}

// Keys that transformers passes over: the same rotation as without them.
static void keys_without_effect(void **state) {
#define YARN(more)                                                                                 \
    QWEN3(",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"                              \
          "\"original_max_position_embeddings\":128" more "}")
    struct model_config c, with;
    load_ok(&c, YARN(""));
    load_ok(&with, YARN(",\"attn_factor\":0.8782488562869419,\"finetuned\":true"));
    assert_memory_equal(&c, &with, sizeof c);
    assert_true(fabsf(c.ropes[0].scale - 1.13862944f) < 1e-6f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotary_frequencies),
        cmocka_unit_test(rotary_frequencies_of_a_part),
        cmocka_unit_test(defaults_of_classes),
        cmocka_unit_test(keys_without_effect),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
