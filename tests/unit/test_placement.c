// Several engines behind one service: which model a session has, which instance its turns go to, and
// where they go when that one is full, draining or gone.
#include "tests/unit/instances_fixture.h"

// And another model: "other", instance "c".
static void other_model(void) {
    fake_use(C);
    fake.info.model_name = "other";
    fake.info.fingerprint = "f-other";
    fake.info.n_vocab = 500;
}

static void open_with(const char *id, const char *model) {
    struct request r = fx_request(1, "open");
    r.kind = REQUEST_OPEN;
    r.session = id;
    r.open.model = model;
    r.open.sink_len = -1;
    sessions_submit(fx.ss, &r);
    fx_settle();
}

static void a_session_names_its_model(void **state) {
    fx_setup_memory();
    other_model();
    add("c", C);
    open_with("s", NULL);
    open_with("t", "other");
    open_with("u", "none");
    fx_expect_error("invalid");
    assert_string_equal(fx_last_answer()->message,
                        "model: there is no 'none'; this server has 'fake', 'other'");
    turn("s", "to the default");
    assert_int_equal(submitted(A), 1);
    assert_int_equal(submitted(C), 0);
    turn("t", "to the other");
    assert_int_equal(submitted(A), 1);
    assert_int_equal(submitted(C), 1);
    // An id that only the first model has.
    const int32_t ids[] = {600};
    fx_start_ids(1, "t", ids, 1);
    fx_settle();
    fx_expect_error("invalid");
    fx_start_ids(1, "s", ids, 1);
    run_all();
    assert_int_equal(submitted(A), 2);
    fx_teardown();
}

static void instances_of_a_model_are_equal(void **state) {
    struct err err = {0};
    struct instance_options o = {.name = "c", .engine = C, .sink_len = 4};
    setup_pair();
    fake_use(C);
    fake.info.fingerprint = "f-2";
    assert_int_equal(sessions_add_instance(fx.ss, &o, &err), E_INVAL);
    assert_non_null(strstr(err.text, "another model is called 'fake' already"));
    fake.info.fingerprint = "f-1";
    fake.info.kv_dtype = fakes[0].info.kv_dtype + 1;
    assert_int_equal(sessions_add_instance(fx.ss, &o, &err), E_INVAL);
    assert_non_null(strstr(err.text, "would not compute"));
    fake.info.kv_dtype = fakes[0].info.kv_dtype;
    o.name = "b";
    assert_int_equal(sessions_add_instance(fx.ss, &o, &err), E_INVAL);
    assert_non_null(strstr(err.text, "there is an instance 'b' already"));
    o.name = "a/b";
    assert_int_equal(sessions_add_instance(fx.ss, &o, &err), E_INVAL);
    o.name = "c";
    assert_int_equal(sessions_add_instance(fx.ss, &o, &err), 0);
    fx_teardown();
}

static void turns_spread_and_sessions_stay(void **state) {
    char id[8];
    setup_pair();
    for (int i = 0; i < 4; i++) {
        snprintf(id, sizeof id, "s%d", i);
        fx_open_session(1, id);
        fx_start(1, id, "x");
        fx_settle();
    }
    assert_int_equal(submitted(A), 2);
    assert_int_equal(submitted(B), 2);
    assert_int_equal(at("")->n_turns, 2);
    run_all();
    assert_int_equal(at("")->n_turns, 0);
    assert_int_equal(at("b")->n_turns, 0);
    for (int round = 0; round < 3; round++) turn("s1", "y"); // the second one went to b
    assert_int_equal(submitted(B), 5);
    assert_int_equal(submitted(A), 2);
    assert_int_equal(at("b")->n_sessions, 2);
    // Cold, it lives nowhere, and the events of its engine are counted there.
    fx_advance(fx.o.max_sequence_idle_microseconds + 1);
    assert_int_equal(at("")->n_sessions, 0);
    assert_int_equal(at("b")->n_sessions, 0);
    fake_use(B);
    assert_int_equal(fake.n_released, 2);
    fx_teardown();
}

static void equal_beginnings_meet(void **state) {
    setup_pair();
    struct request r = fx_request(1, "open");
    const char *const ids[] = {"s", "t", "u"};
    for (int i = 0; i < 3; i++) {
        r.kind = REQUEST_OPEN;
        r.session = ids[i];
        r.open.system = "A system prompt that is longer than a block of sixteen tokens.";
        r.open.sink_len = -1;
        sessions_submit(fx.ss, &r);
        fx_settle();
        fx_start(1, ids[i], ids[i]);
        fx_settle();
    }
    assert_int_equal(submitted(A), 3); // the blocks are shared there
    assert_int_equal(submitted(B), 0);
    fx_open_session(1, "v");
    fx_start(1, "v", "x");
    fx_settle();
    assert_int_equal(submitted(B), 1);
    run_all();
    fx_teardown();
}

static void a_full_one_gives_way(void **state) {
    setup_pair();
    fx_open_session(1, "s");
    turn("s", "x");
    assert_int_equal(submitted(A), 1);
    fake_use(A);
    fake.submit_rc = E_BUSY;
    fx_start(1, "s", "y");
    run_all();
    assert_int_equal(submitted(A), 1);
    assert_int_equal(submitted(B), 1);
    fake_use(A);
    assert_int_equal(fake.n_released, 1); // what it had of the session
    assert_ptr_equal(fx_session("s")->instance, at("b"));
    fake.submit_rc = 0;
    fx_teardown();
}

static void a_hot_home_hands_over(void **state) {
    setup_pair();
    fx_open_session(1, "s");
    turn("s", "x");
    at("")->n_turns += 7; // of 4 places
    fx_start(1, "s", "y");
    fx_settle();
    assert_int_equal(submitted(A), 2); // it waits for its cache's sake
    run_all();
    at("")->n_turns++;
    fx_start(1, "s", "z");
    run_all();
    assert_int_equal(submitted(A), 2);
    assert_int_equal(submitted(B), 1);
    at("")->n_turns -= 8;
    fx_teardown();
}

static void a_draining_one_takes_no_turn(void **state) {
    setup_pair();
    fx_open_session(1, "s");
    turn("s", "x");
    instance_set(at(""), INSTANCE_DRAINING);
    turn("s", "y");
    assert_int_equal(submitted(A), 1);
    assert_int_equal(submitted(B), 1);
    instance_set(at("b"), INSTANCE_LOST);
    fx_start(1, "s", "z");
    fx_settle();
    fx_expect_error("overloaded");
    assert_true(fx_last_answer()->retry_after_ms > 0);
    fx_teardown();
}

static void drain(const char *name) {
    struct err err = {0};
    if (sessions_drain_instance(fx.ss, name, false, &err) < 0) fail_msg("%s", err.text);
    fx_settle();
}
static void settled_steps(int n) {
    for (int i = 0; i < n; i++) {
        step_all();
        fx_settle();
    }
}

// The running turn goes on elsewhere; caches are taken over as they are.
static void a_drained_one_gives_its_caches_away(void **state) {
    char id[8];
    setup_pair();
    for (int i = 0; i < 8; i++) {
        snprintf(id, sizeof id, "s%d", i);
        fx_open_session(1 + (uint64_t)i / 4, id);
        fx_start(1 + (uint64_t)i / 4, id, "x");
        fx_settle();
        if (i % 4 == 3) run_all();
    }
    assert_int_equal(submitted(A), 4);
    fx_start(1, "s0", "long");
    fx_settle();
    int64_t running = at("")->n_turns;
    assert_int_equal(running, 1);
    drain("");
    assert_string_equal(instance_state_name(at("")->state), "draining");
    settled_steps(3);
    run_all();
    settled_steps(3);
    assert_string_equal(instance_state_name(at("")->state), "drained");
    assert_int_equal(at("")->n_sessions, 0);
    assert_int_equal(at("b")->n_sessions, 8);
    assert_int_equal(fakes[0].n_exported, 4);
    assert_int_equal(fakes[1].n_imported, 4);
    assert_int_equal(fx_session("s2")->cache, PLACE_HOST);
    assert_int_equal(fx_follower(1, "s2")->count[EVENT_PARKED], 1);
    assert_int_equal(fx_follower(1, "s0")->count[EVENT_PARKED], 0); // test_failover.c
    // The next turn finds it.
    turn("s2", "y");
    fake_use(B);
    assert_string_equal(engine_cache_source_name(fx_session("s2")->turns[1]->rec.numbers.source),
                        "kept");
    assert_int_equal(submitted(A), 5);
    fx_teardown();
}

static void a_cache_that_finds_no_room_is_computed_again(void **state) {
    setup_pair();
    fx_open_session(1, "s");
    fx_open_session(1, "t");
    turn("s", "x");
    fake_use(B);
    fake.no_host = true;
    drain("");
    settled_steps(3);
    assert_string_equal(instance_state_name(at("")->state), "drained");
    assert_int_equal(fx_session("s")->cache, PLACE_NONE);
    assert_null(fx_session("s")->instance);
    assert_int_equal(fx_follower(1, "s")->count[EVENT_EVICTED], 1);
    turn("s", "y");
    assert_string_equal(engine_cache_source_name(fx_session("s")->turns[1]->rec.numbers.source),
                        "recomputed");
    fx_teardown();
}

// A turn that comes while the cache is on its way goes elsewhere; the cache is freed.
static void a_turn_overtakes_its_cache(void **state) {
    setup_pair();
    fx_open_session(1, "s");
    turn("s", "x");
    struct err err;
    assert_int_equal(sessions_drain_instance(fx.ss, "", false, &err), 0);
    sessions_poll(fx.ss); // on its way
    assert_int_equal(fx_session("s")->cache, PLACE_TRAVELS);
    turn("s", "y");
    assert_int_equal(submitted(B), 1);
    assert_ptr_equal(fx_session("s")->instance, at("b"));
    assert_string_equal(instance_state_name(at("")->state), "drained");
    // Deleted meanwhile.
    add("c", C);
    assert_int_equal(sessions_drain_instance(fx.ss, "b", false, &err), 0);
    sessions_poll(fx.ss);
    struct request r = fx_request(1, "delete");
    r.kind = REQUEST_CLOSE;
    r.session = "s";
    r.close.delete_it = true;
    sessions_submit(fx.ss, &r);
    settled_steps(5);
    assert_string_equal(instance_state_name(at("b")->state), "drained");
    fx_teardown();
}

static void what_is_drained_can_be_removed(void **state) {
    const struct served_model *held, *old;
    struct err err = {0};
    setup_pair();
    fx_open_session(1, "s");
    turn("s", "x");
    assert_ptr_equal(service_model(fx_session("s"))->engine, A);
    assert_int_equal(sessions_drain_instance(fx.ss, "x", false, &err), E_NOTFOUND);
    assert_int_equal(sessions_remove_instance(fx.ss, "", &old, &err), E_BUSY);
    held = placement_hold(sessions_placement(fx.ss), NULL);
    drain("");
    settled_steps(3);
    assert_int_equal(sessions_remove_instance(fx.ss, "", &old, &err), 0);
    // A holder of the model keeps the engine that it names; later holders get the next one's.
    assert_ptr_equal(old, held);
    assert_ptr_equal(old->engine, A);
    assert_false(placement_is_unused(old));
    placement_drop(held);
    assert_true(placement_is_unused(old));
    placement_drop(old);
    assert_ptr_equal(at("b")->model->engine, B);
    assert_ptr_equal(sessions_placement(fx.ss)->models, at("b")->model);
    assert_ptr_equal(service_model(fx_session("s")), at("b")->model); // not the one it found before
    turn("s", "y");
    assert_int_equal(submitted(B), 1);
    // The last one of a model goes only if that is meant; its sessions then are cold.
    assert_int_equal(sessions_drain_instance(fx.ss, "b", false, &err), E_BUSY);
    assert_non_null(strstr(err.text, "no other instance of 'fake' serves"));
    assert_int_equal(sessions_drain_instance(fx.ss, "b", true, &err), 0);
    fx_settle();
    assert_string_equal(instance_state_name(at("b")->state), "drained");
    assert_int_equal(sessions_remove_instance(fx.ss, "b", &old, &err), 0);
    assert_ptr_equal(old->engine, B);
    assert_true(placement_is_unused(old));
    placement_drop(old);
    fake_use(B);
    fake.first_event = fake.n_events = 0; // closed with what it would have said
    assert_int_equal(fx_session("s")->cache, PLACE_NONE);
    fx_start(1, "s", "z");
    fx_settle();
    fx_expect_error("unsupported");
    add("a", A);
    turn("s", "z");
    assert_int_equal(submitted(A), 2);
    fx_teardown();
}

static void states_of_an_instance(void **state) {
    static const char *const leads[N_INSTANCE_STATES] = {
        [INSTANCE_SERVING] = "draining lost ",
        [INSTANCE_DRAINING] = "drained lost ",
        [INSTANCE_DRAINED] = "lost ",
        [INSTANCE_LOST] = "serving drained ",
    };
    for (enum instance_state from = 0; from < N_INSTANCE_STATES; from++) {
        char list[80] = "";
        for (enum instance_state to = 0; to < N_INSTANCE_STATES; to++)
            if (instance_leads_to(from, to)) strcat(strcat(list, instance_state_name(to)), " ");
        assert_string_equal(list, leads[from]);
    }
}

// Its sessions go on elsewhere, and it is asked no more.
static void a_lost_device_gives_way(void **state) {
    setup_pair();
    fx_open_session(1, "s");
    turn("s", "x");
    assert_int_equal(submitted(A), 1);
    fake.submit_rc = E_DEVICE;
    turn("s", "y");
    assert_int_equal(submitted(A), 1);
    assert_int_equal(submitted(B), 1);
    assert_int_equal(at("")->state, INSTANCE_LOST);
    assert_string_equal(fx_follower(1, "s")->turns[1].finish, "eos");
    fake_use(B);
    fake.submit_rc = E_DEVICE;
    fx_start(1, "s", "z");
    fx_settle();
    fx_expect_error("overloaded");
    assert_true(fx_last_answer()->retry_after_ms > 0);
    fake.submit_rc = 0;
    fake_use(A);
    fake.submit_rc = 0;
    fx_teardown();
}

static void a_snapshot_draws_its_session(void **state) {
    char lasting[SESSION_LASTING_BYTES];
    setup_pair();
    fx_open_session(1, "s");
    fx_open_session(1, "t");
    session_lasting_name(fx_session("t")->rec.owner, "t", lasting);
    fake_use(B);
    fake.files[0] = lasting;
    turn("s", "x");
    turn("t", "x");
    assert_int_equal(submitted(A), 1);
    assert_int_equal(submitted(B), 1);
    fx_teardown();
}

// Of more instances than a choice lists, the least loaded ones are listed, and the one with the snapshot.
static void many_instances_are_all_considered(void **state) {
    enum { MANY = 300, LISTED = 64 };
    static struct instance many[MANY];
    struct instance *list[LISTED];
    struct placement p = {0};
    struct served_model m = {.info = &fake.info};
    struct placement_turn t = {.model = &m, .lasting = "file"};
    uint64_t prefix;
    setup_pair();
    for (int k = 0; k < MANY; k++) {
        many[k] = (struct instance){
            .engine = A, .info = &fake.info, .model = &m, .max_sequences = 8, .n_turns = MANY - k};
        DL_APPEND(p.instances, &many[k]);
    }
    assert_int_equal(placement_choose(&p, &t, list, LISTED, &prefix), LISTED);
    for (int k = 0; k < LISTED; k++) assert_ptr_equal(list[k], &many[MANY - 1 - k]);
    fake_use(B);
    fake.files[0] = "file";
    many[7].engine = B;
    assert_int_equal(placement_choose(&p, &t, list, LISTED, &prefix), LISTED);
    assert_ptr_equal(list[0], &many[7]);
    assert_ptr_equal(list[1], &many[MANY - 1]);
    many[7].state = INSTANCE_DRAINING;
    assert_int_equal(placement_choose(&p, &t, list, LISTED, &prefix), LISTED);
    assert_ptr_equal(list[0], &many[MANY - 1]);
    fx_teardown();
}

static void a_fork_is_born_beside_its_cache(void **state) {
    setup_pair();
    fx_open_session(1, "s");
    fx_open_session(1, "t");
    fx_start(1, "s", "x");
    fx_start(1, "t", "x");
    run_all();
    struct request r = fx_request(1, "fork");
    r.kind = REQUEST_FORK;
    r.session = "t";
    r.turn = TURN_HEAD;
    r.fork.new_session = "u";
    r.title = NULL;
    sessions_submit(fx.ss, &r);
    fx_settle();
    fake_use(B);
    assert_int_equal(fake.n_forked, 1);
    assert_ptr_equal(fx_session("u")->instance, at("b"));
    turn("u", "y");
    assert_int_equal(submitted(B), 2);
    fx_teardown();
}

// A restart places sessions by the model on record; one whose model is gone can be read.
static void a_restart_places_sessions(void **state) {
    fx_setup_file();
    other_model();
    add("c", C);
    open_with("t", "other");
    turn("t", "x");
    fx_restart();
    fx_attach(1, "t", 0);
    fx_start(1, "t", "y");
    fx_settle();
    fx_expect_error("unsupported");
    assert_string_equal(
        fx_last_answer()->message,
        "the session was made with another model ('other'); this server has 'fake'");
    assert_int_equal(fx_get(2, "t")->n_turns, 1);
    struct request r = fx_request(1, "replay");
    ask_for(fx.ss, &r, REQUEST_REPLAY, "t", 0);
    fx_settle();
    fx_expect_error("unsupported");
    other_model(); // it comes back
    add("c", C);
    turn("t", "y");
    assert_int_equal(submitted(C), 1);
    assert_int_equal(submitted(A), 0);
    fx_teardown();
}

// The same name, and other weights or another number format: after a change of settings, or on another server.
static void a_namesake_is_another_model(void **state) {
    fx_setup_file();
    open_with("s", NULL);
    turn("s", "x");
    free(fx_session("s")->rec.fingerprint);
    fx_session("s")->rec.fingerprint = strdup("f-before");
    fx.ss->placement.models_version++; // as when models come and go
    fx_start(1, "s", "y");
    fx_settle();
    fx_expect_error("unsupported");
    const char *why = "the session was made with another model of the name 'fake': the weights or "
                      "their number format (weight_dtype) were not those of this server";
    assert_string_equal(fx_last_answer()->message, why);
    struct request r = fx_request(1, "replay");
    ask_for(fx.ss, &r, REQUEST_REPLAY, "s", 0);
    fx_settle();
    fx_expect_error("unsupported");
    assert_string_equal(fx_last_answer()->message, why);
    fx_teardown();
}

// --- a model that a protocol holds ---

static void open_held(const char *id, const struct served_model *m) {
    struct request r = fx_request(1, "open");
    r.kind = REQUEST_OPEN;
    r.session = id;
    r.open.served = m;
    r.open.sink_len = -1;
    sessions_submit(fx.ss, &r);
    fx_settle();
}

static void unload(const char *name, struct engine *e) {
    const struct served_model *old;
    struct err err = {0};
    if (sessions_drain_instance(fx.ss, name, true, &err) < 0) fail_msg("%s", err.text);
    settled_steps(3);
    assert_int_equal(sessions_remove_instance(fx.ss, name, &old, &err), 0);
    placement_drop(old);
    fake_use(e);
    fake.first_event = fake.n_events = 0; // closed with what it would have said
}

// While a request waits, its model may get another engine, be unloaded, and give its name to another one.
static void a_held_model_is_the_one_or_none(void **state) {
    setup_pair();
    const struct served_model *m = placement_hold(sessions_placement(fx.ss), "fake");
    unload("", A);
    open_held("s", m); // another instance of the model serves
    turn("s", "x");
    assert_int_equal(submitted(A), 0);
    assert_int_equal(submitted(B), 1);
    unload("b", B);
    open_held("t", m);
    fx_expect_error("overloaded");
    assert_string_equal(
        fx_last_answer()->message,
        "model: 'fake' was unloaded while the request waited; this server has none");
    fake_use(B);
    fake.info.fingerprint = "f-2";
    add("b", B);
    open_held("t", m); // ids that its tokenizer made are nothing to a namesake
    fx_expect_error("overloaded");
    assert_string_equal(
        fx_last_answer()->message,
        "model: 'fake' was unloaded while the request waited; this server has 'fake'");
    assert_null(fx_session("t"));
    open_with("t", "fake");
    turn("t", "y");
    assert_int_equal(submitted(B), 2);
    placement_drop(m);
    fx_teardown();
}

// An opening that names its model, as parley.v1's, has found it when it begins to wait: here for a deletion.
static void a_waiting_opening_has_found_its_model(void **state) {
    const struct served_model *old = NULL;
    fx_setup_memory();
    struct placement *p = &fx.ss->placement;
    struct request close = fx_request(1, "close"), open = fx_request(2, "open");
    open_with("s", NULL);
    ask_close(fx.ss, &close, "s", true);
    ask_open(fx.ss, &open, &(struct ask_open){.id = "s", .model = "fake", .sink_len = -1});
    assert_non_null(fx_session("s")->deferred);
    assert_int_equal(placement_remove(p, placement_find(p, ""), &old), 0);
    placement_drop(old);
    fake_use(B);
    fake.info.fingerprint = "f-2";
    add("b", B);
    fx_settle();
    fx_expect_error("overloaded");
    assert_string_equal(
        fx_last_answer()->message,
        "model: 'fake' was unloaded while the request waited; this server has 'fake'");
    assert_null(fx_session("s"));
    fx_teardown();
}

static void a_waiting_request_holds_its_model(void **state) {
    static const enum request_kind kinds[] = {REQUEST_OPEN, REQUEST_START};
    fx_setup_memory();
    for (int i = 0; i < 2; i++) {
        struct request r;
        request_init(&r, kinds[i]);
        r.owner = "local";
        const struct served_model *m = placement_hold(sessions_placement(fx.ss), NULL);
        (kinds[i] == REQUEST_OPEN ? &r.open : &r.start.open)->served = m;
        struct request *copy = request_copy(&r);
        placement_drop(m);
        assert_false(placement_is_unused(m));
        request_free(copy);
        assert_true(placement_is_unused(m));
    }
    fx_teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_names_its_model),
        cmocka_unit_test(instances_of_a_model_are_equal),
        cmocka_unit_test(turns_spread_and_sessions_stay),
        cmocka_unit_test(equal_beginnings_meet),
        cmocka_unit_test(a_full_one_gives_way),
        cmocka_unit_test(a_hot_home_hands_over),
        cmocka_unit_test(a_draining_one_takes_no_turn),
        cmocka_unit_test(a_drained_one_gives_its_caches_away),
        cmocka_unit_test(a_cache_that_finds_no_room_is_computed_again),
        cmocka_unit_test(a_turn_overtakes_its_cache),
        cmocka_unit_test(what_is_drained_can_be_removed),
        cmocka_unit_test(states_of_an_instance),
        cmocka_unit_test(a_lost_device_gives_way),
        cmocka_unit_test(a_snapshot_draws_its_session),
        cmocka_unit_test(many_instances_are_all_considered),
        cmocka_unit_test(a_fork_is_born_beside_its_cache),
        cmocka_unit_test(a_restart_places_sessions),
        cmocka_unit_test(a_namesake_is_another_model),
        cmocka_unit_test(a_held_model_is_the_one_or_none),
        cmocka_unit_test(a_waiting_opening_has_found_its_model),
        cmocka_unit_test(a_waiting_request_holds_its_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
