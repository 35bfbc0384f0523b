// Owners: the table of limits, rates and sentences.
#include "base/err.h"
#include "base/metrics.h"
#include "sessions/state/owners.h"
#include "tests/cmocka.h"
#include <stdio.h>
#include <string.h>

#define SECOND 1000000

static struct owners table;
static struct metrics *metrics;

static int setup(void **state) {
    metrics = metrics_new();
    owners_init(&table, metrics);
    return 0;
}
static int teardown(void **state) {
    owners_release(&table);
    metrics_free(metrics);
    return 0;
}

static void a_name_is_one_owner_with_one_number(void **state) {
    struct owner *local = owners_get(&table, "local"), *none = owners_get(&table, "");
    char name[32];
    assert_int_equal(local->number, 1);
    assert_int_equal(none->number, 2);
    assert_int_equal(owners_get(&table, "Local")->number, 3);
    for (int round = 0; round < 2; round++)
        for (unsigned i = 0; i < 500; i++) {
            snprintf(name, sizeof name, "o%u", i);
            assert_int_equal(owners_get(&table, name)->number, 4 + i);
        }
    assert_ptr_equal(owners_get(&table, "local"), local);
}

// The rows are in the order of enum owner_limit: each name finds its own field.
static void every_limit_has_a_row_a_setting_and_a_sentence(void **state) {
    struct config_key settings[N_OWNER_LIMITS];
    struct owner *o = owners_get(&table, "o");
    assert_int_equal(owner_limit_keys(settings, 8), N_OWNER_LIMITS);
    for (int i = 0; i < N_OWNER_LIMITS; i++) {
        const struct config_key *k = &owner_limits_table.keys[i];
        struct owner_limits l;
        struct err err = {0};
        char text[32];
        double max = k->type == CONFIG_FLOAT ? 0.25 : 3;
        assert_int_equal(config_init(&owner_limits_table, &l, &err), 0); // defaults are in range
        memset(&l, 0, sizeof l);
        snprintf(text, sizeof text, "%g", max);
        assert_int_equal(config_set(&owner_limits_table, &l, k->name, text, &err), 0);
        assert_int_equal(config_set(&owner_limits_table, &l, k->name, "-1", &err), E_INVAL);
        for (int j = 0; j < N_OWNER_LIMITS; j++)
            assert_true(owner_limit_value(&l, (enum owner_limit)j) == (i == j ? max : 0));
        assert_string_equal(settings[i].name + strlen("owner_"), k->name);
        assert_int_equal(settings[i].offset, k->offset + 8);
        owner_set_limits(o, &l, 0);
        assert_int_equal(owner_refuse(&table, o, (enum owner_limit)i, &err), E_LIMIT);
        assert_non_null(strstr(err.text, text));
        assert_int_equal(o->refused[i], 1);
        assert_true(metric_value(table.m_limited[i]) == 1);
    }
}

static void counts_have_room_up_to_their_limit(void **state) {
    struct owner *o = owners_get(&table, "o");
    struct owner_limits l = {.sessions = 3};
    assert_true(owner_has_room(o, OWNER_SESSIONS, 1000000)); // 0: no limit
    owner_set_limits(o, &l, 0);
    owner_use(o, OWNER_SESSIONS, 2);
    assert_true(owner_has_room(o, OWNER_SESSIONS, 1));
    assert_false(owner_has_room(o, OWNER_SESSIONS, 2));
    l.sessions = 2;
    owner_set_limits(o, &l, 0);
    assert_false(owner_has_room(o, OWNER_SESSIONS, 1)); // at once
}

static void requests_are_refused_with_a_time_that_is_true(void **state) {
    struct owner *o = owners_get(&table, "o");
    struct owner_limits l = {.requests_per_minute = 240}; // 4 a second, 60 at once
    int64_t now = 5 * SECOND;
    owner_set_limits(o, &l, now);
    for (int i = 0; i < 60; i++) assert_int_equal(owner_take_requests(o, 1, now), 0);
    // Three requests that are refused at the same time get times one after another, and all are
    // accepted then.
    int64_t waits[3];
    for (int i = 0; i < 3; i++) waits[i] = owner_take_requests(o, 1, now);
    for (int i = 0; i < 3; i++) assert_in_range(waits[i], 250 * (i + 1), 250 * (i + 1) + 1);
    assert_true(owner_take_requests(o, 1, now + (waits[0] - 2) * 1000) > 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(owner_take_requests(o, 1, now + waits[i] * 1000), 0);
    assert_int_equal(o->used[OWNER_REQUESTS], 63);
    // A client that keeps asking gets at most what fills the bucket in that time.
    for (int i = 0; i < 1000; i++)
        assert_in_range(owner_take_requests(o, 1, now + waits[2] * 1000), 1, 15001);
}

static void tokens_are_charged_when_they_are_computed(void **state) {
    struct owner *o = owners_get(&table, "o");
    struct owner_limits l = {.tokens_per_minute = 6000}; // 100 a second
    owner_charge_tokens(o, 1000000, 0);                  // without a limit
    assert_int_equal(owner_tokens_wait_ms(o, 0), 0);
    owner_set_limits(o, &l, 0);
    assert_int_equal(owner_tokens_wait_ms(o, 0), 0);
    owner_charge_tokens(o, 1500 + 299, 0); // all there is, and 3 s of debt but for a token
    int64_t wait = owner_tokens_wait_ms(o, 0);
    assert_in_range(wait, 3009, 3011);
    assert_true(owner_tokens_wait_ms(o, (wait - 5) * 1000) > 0);
    owner_set_limits(o, &l, wait * 1000); // the same again changes nothing
    assert_int_equal(owner_tokens_wait_ms(o, wait * 1000), 0);
    assert_int_equal(o->used[OWNER_TOKENS], 1001799);
}

static void what_is_left_of_a_rate(void **state) {
    struct owner *o = owners_get(&table, "o");
    struct owner_limits l = {.requests_per_minute = 240, .tokens_per_minute = 6000};
    int64_t now = 5 * SECOND, full_ms;
    owner_set_limits(o, &l, now);
    assert_int_equal(owner_rate_left(o, OWNER_REQUESTS, now, &full_ms), 60);
    assert_int_equal(full_ms, 0);
    for (int i = 0; i < 40; i++) assert_int_equal(owner_take_requests(o, 1, now), 0);
    assert_int_equal(owner_rate_left(o, OWNER_REQUESTS, now, &full_ms), 20);
    assert_int_equal(full_ms, 10000);
    assert_int_equal(owner_rate_left(o, OWNER_REQUESTS, now + 5 * SECOND, &full_ms), 40);
    assert_int_equal(full_ms, 5000);
    assert_int_equal(owner_rate_left(o, OWNER_REQUESTS, now, &full_ms), 20); // a look takes nothing
    owner_charge_tokens(o, 1600, now);
    assert_int_equal(owner_rate_left(o, OWNER_TOKENS, now, &full_ms), 0); // in debt
    assert_int_equal(full_ms, 16000);
}

// Sessions that cannot leave memory: a quarter more than the limit, at least 64, beside those with a
// turn. The time told follows from how many sessions left in the last seconds; each further caller is
// told a later one.
static void sessions_that_cannot_leave_are_bounded(void **state) {
    struct owner *o = owners_get(&table, "crowd");
    struct owner_limits l = {.resident_sessions = 400};
    int64_t now = 50 * SECOND;
    owner_use(o, OWNER_RESIDENT_SESSIONS, 100000);
    assert_int_equal(owner_crowd_ms(o, now), 0); // without a limit
    owner_set_limits(o, &l, now);
    assert_int_equal(owner_crowd_ms(o, now), 1000); // nothing has left yet
    o->used[OWNER_RESIDENT_SESSIONS] = 499;
    assert_int_equal(owner_crowd_ms(o, now), 0);
    o->used[OWNER_RESIDENT_SESSIONS] = 500;
    o->used[OWNER_OUTSTANDING_JOBS] = 1;
    assert_int_equal(owner_crowd_ms(o, now), 0);
    o->used[OWNER_OUTSTANDING_JOBS] = 0;
    for (int i = 0; i < 400; i++) owner_session_left(o, now += SECOND / 50); // 50 in a second
    assert_in_range(owner_crowd_ms(o, now), 19, 23);
    assert_in_range(owner_crowd_ms(o, now), 38, 44);                     // the next one to come
    assert_in_range(owner_crowd_ms(o, now + 100 * SECOND), 1000, 10000); // none leaves any more
    l.resident_sessions = 4;
    owner_set_limits(o, &l, now);
    o->used[OWNER_RESIDENT_SESSIONS] = 67;
    assert_int_equal(owner_crowd_ms(o, now), 0);
    o->used[OWNER_RESIDENT_SESSIONS] = 68;
    assert_true(owner_crowd_ms(o, now) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sessions_that_cannot_leave_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(a_name_is_one_owner_with_one_number, setup, teardown),
        cmocka_unit_test_setup_teardown(every_limit_has_a_row_a_setting_and_a_sentence, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(counts_have_room_up_to_their_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(requests_are_refused_with_a_time_that_is_true, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_left_of_a_rate, setup, teardown),
        cmocka_unit_test_setup_teardown(tokens_are_charged_when_they_are_computed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
