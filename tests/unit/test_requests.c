// Which request an event answers.
#include "ws/requests.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static struct requests r;

static void note(enum message_type type, const char *session, const char *id, bool delete_it) {
    struct message m = {.type = type, .session = session, .delete_it = delete_it};
    strcpy(m.request_id, id);
    requests_note(&r, &m);
}
static void answered(enum session_event_kind kind, const char *session, const char *expected) {
    char id[SESSION_REQUEST_ID_MAX + 1];
    struct session_event ev = {.kind = kind};
    requests_answered(&r, &ev, session, id);
    assert_string_equal(id, expected);
}

static void by_session_then_by_order(void **state) {
    note(MESSAGE_SESSION_OPEN, NULL, "first", false);
    note(MESSAGE_SESSION_OPEN, "mine", "second", false);
    note(MESSAGE_SESSION_OPEN, NULL, "third", false);
    note(MESSAGE_TURN_START, "mine", "turn", false);
    answered(EVENT_DELTA, "mine", "");
    answered(EVENT_OPENED, "mine", "second");
    answered(EVENT_OPENED, "drawn1", "first");
    answered(EVENT_UPDATED, "drawn2", "");
    answered(EVENT_OPENED, "drawn2", "third");
    answered(EVENT_OPENED, "drawn3", "");
    requests_release(&r);
}

static void answers_settle_requests(void **state) {
    note(MESSAGE_SESSION_CLOSE, "a", "x", true);
    note(MESSAGE_SESSION_UPDATE, "a", "y", false);
    note(MESSAGE_SESSION_OPEN, NULL, "z", false);
    struct session_answer a = {.kind = ANSWER_ERROR, .request_id = "z"};
    requests_forget(&r, &a);
    answered(EVENT_OPENED, "drawn", "");
    a = (struct session_answer){.kind = ANSWER_CLOSED, .request_id = "x", .session_id = "a"};
    assert_true(requests_forget(&r, &a));
    answered(EVENT_CLOSED, "a", "");
    a = (struct session_answer){.kind = ANSWER_ACCEPTED, .request_id = "y", .session_id = "a"};
    assert_false(requests_forget(&r, &a));
    answered(EVENT_UPDATED, "a", "y");
    requests_release(&r);
}

static void they_are_bounded(void **state) {
    for (int i = 0; i < 1000; i++) {
        char id[16];
        snprintf(id, sizeof(id), "%d", i);
        note(MESSAGE_SESSION_OPEN, NULL, id, false);
    }
    assert_true(r.count <= 256);
    answered(EVENT_OPENED, "drawn", "744");
    requests_release(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_session_then_by_order),
        cmocka_unit_test(answers_settle_requests),
        cmocka_unit_test(they_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
