// The memory budget of a GPU, and the sentences that say what is needed and what would fit. The
// numbers are those of Llama-8B on a GPU of 140 GiB, and of smaller ones.
#include "engine/budget.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

static struct budget llama_8b(int64_t total, int64_t left, double fraction) {
    return (struct budget){.device = "cuda: a GPU, bf16",
                           .total = total,
                           .left = left,
                           .fraction = fraction,
                           .weights = 15 * GIB,
                           .loaded = true,
                           .work = 512 * MIB,
                           .work_per_token = 200 << 10,
                           .max_sequences = 16,
                           .prefill_chunk_tokens = 2048,
                           .block_tokens = 64,
                           .block_bytes = 8 * MIB,
                           .memory_len = 1024,
                           .session_len = 131072};
}

static const char *said(int rc, struct err *err) {
    assert_int_equal(rc, E_NOMEM);
    assert_int_equal(err->code, E_NOMEM);
    return err->text;
}
static const char *no_cache(const struct budget *b, struct err *err) {
    return said(budget_no_cache(b, err), err);
}
#define SAYS(text, part)                                                                           \
    do {                                                                                           \
        const char *t_ = (text);                                                                   \
        if (!strstr(t_, part)) fail_msg("'%s' is not in: %s", part, t_);                           \
    } while (0)

static void the_cache_takes_what_the_fraction_leaves(void **state) {
    struct budget b = llama_8b(140 * GIB, 124 * GIB, 0.9);
    assert_int_equal(budget_cache(&b), (int64_t)(0.9 * 140 * GIB) - 16 * GIB - GIB);
    assert_int_equal(budget_largest_cache(&b), 123 * GIB);
    b.fraction = 0; // none given: most of the memory
    assert_int_equal(budget_cache(&b), (int64_t)(0.95 * 140 * GIB) - 16 * GIB - GIB);
    b.fraction = 0.1;
    assert_int_equal(budget_cache(&b), 0);
    b.left = 512 * MIB;
    assert_int_equal(budget_largest_cache(&b), 0);
}

static void places_follow_from_the_cache(void **state) {
    struct budget b = llama_8b(140 * GIB, 124 * GIB, 0.9); // 16 blocks of 8 MiB for 1,024 tokens
    assert_int_equal(budget_places(&b, 0, 1024), budget_cache(&b) / (128 * MIB));
    assert_true(budget_places(&b, 0, 1024) > 256);
    assert_int_equal(budget_places(&b, 4 * GIB, 1024), 32);
    assert_int_equal(budget_places(&b, 4 * GIB, 1025), 30);
    b.session_len = 130; // no session is longer
    assert_int_equal(budget_places(&b, 4 * GIB, 1024), 4 * GIB / (24 * MIB));
    b = llama_8b(24 * GIB, 8 * GIB, 0.9);
    assert_in_range(budget_places(&b, 0, 1024), 16, 63);
    b.left = 0;
    assert_int_equal(budget_places(&b, 0, 1024), 0);
}

static void the_least_cache_is_a_window_with_its_slack_or_a_short_session(void **state) {
    struct budget b = llama_8b(140 * GIB, 124 * GIB, 0.9);
    assert_int_equal(budget_least_cache(&b), ((1024 + 2048) / 64 + 2) * 8 * MIB);
    b.memory_len = 1025;
    assert_int_equal(budget_least_cache(&b), ((1024 + 2048) / 64 + 3) * 8 * MIB);
    b.session_len = 130;
    assert_int_equal(budget_least_cache(&b), 3 * 8 * MIB);
}

static void weights_that_do_not_fit(void **state) {
    struct err err = {0};
    struct budget b = llama_8b(16 * GIB, 12 * GIB, 0.9);
    b.loaded = false;
    SAYS(said(budget_no_weights(&b, &err), &err),
         "the weights take about 15.0 GiB, and cuda: a GPU, bf16 has 12.0 GiB free of 16.0 GiB; "
         "weight_dtype = int8 (about 7.5 GiB) would fit");
    b.eight_bits = true;
    SAYS(said(budget_no_weights(&b, &err), &err), "4.0 GiB are in use by others: free them");
    b.left = b.total - 100 * MIB;
    b.weights = 40 * GIB;
    SAYS(said(budget_no_weights(&b, &err), &err), "take a smaller model, or another device");
}

static void a_fraction_that_is_too_small_says_which_would_do(void **state) {
    struct err err = {0};
    struct budget b = llama_8b(140 * GIB, 124 * GIB, 0.1);
    SAYS(no_cache(&b, &err),
         "has 140.0 GiB, of which gpu_memory_fraction allows 14.0 GiB; the weights take 15.0 GiB, "
         "others 1.0 GiB, the work of 16 turns and chunks of 2048 tokens 1.0 GiB, and a cache for "
         "memory_len 1024 would take 400 MiB; gpu_memory_fraction = 0.13 would do");
    b.fraction = 0.13; // and it fits
    assert_true(budget_cache(&b) >= budget_least_cache(&b));
    b.fraction = 0.12;
    assert_true(budget_cache(&b) < budget_least_cache(&b));
}

static void smaller_chunks_where_the_device_itself_is_short(void **state) {
    struct err err = {0};
    struct budget b = llama_8b(17 * GIB, 17 * GIB - 15 * GIB - 700 * MIB, 0.99);
    const char *text = no_cache(&b, &err), *said_n = strstr(text, "prefill_chunk_tokens = ");
    if (!said_n) fail_msg("%s", text);
    int chunk = atoi(said_n + strlen("prefill_chunk_tokens = "));
    assert_in_range(chunk, 64, 1024);
    b.work -= b.work_per_token * (b.prefill_chunk_tokens - chunk); // accepted as given
    b.prefill_chunk_tokens = chunk;
    assert_true(budget_cache(&b) >= budget_least_cache(&b));
}

static void nothing_but_freeing_memory_helps(void **state) {
    struct err err = {0};
    struct budget b = llama_8b(140 * GIB, 200 * MIB, 0.9);
    SAYS(no_cache(&b, &err), "others 124.8 GiB");
    SAYS(no_cache(&b, &err), "1.2 GiB more must be free on the device, or weight_dtype = int8");
    b.eight_bits = true;
    assert_null(strstr(no_cache(&b, &err), "int8"));
    b.fraction = 0;
    assert_null(strstr(no_cache(&b, &err), "gpu_memory_fraction allows"));
}

static void a_cache_too_large_says_how_large_it_may_be(void **state) {
    struct err err = {0};
    struct budget b = llama_8b(140 * GIB, 124 * GIB, 0.9);
    SAYS(said(budget_cache_too_large(&b, 300 * GIB, &err), &err),
         "kv_cache_bytes: 300.0 GiB do not fit cuda: a GPU, bf16: 124.0 GiB are free of 140.0 GiB "
         "beside the weights (15.0 GiB), and the work of 16 turns and chunks of 2048 tokens takes "
         "1.0 GiB; at most 125952 MiB would fit");
    b.left = GIB + 100 * MIB; // less than one window: the sentence names no size
    SAYS(said(budget_cache_too_large(&b, 300 * GIB, &err), &err), "no room for the cache");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_follow_from_the_cache),
        cmocka_unit_test(the_cache_takes_what_the_fraction_leaves),
        cmocka_unit_test(the_least_cache_is_a_window_with_its_slack_or_a_short_session),
        cmocka_unit_test(weights_that_do_not_fit),
        cmocka_unit_test(a_fraction_that_is_too_small_says_which_would_do),
        cmocka_unit_test(smaller_chunks_where_the_device_itself_is_short),
        cmocka_unit_test(nothing_but_freeing_memory_helps),
        cmocka_unit_test(a_cache_too_large_says_how_large_it_may_be),
    };
    return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}
