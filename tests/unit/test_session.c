// One conversation by itself: event numbers, titles, what clients may be told, and undoing.
#include "sessions/state/title.h"
#include "sessions/state/tree.h"
#include "tests/unit/sessions_fixture.h"

static void numbers_have_no_gap_and_runs_are_joined(void **state) {
    struct event_log l;
    event_log_init(&l);
    assert_int_equal(event_log_seq(&l), 0);
    assert_int_equal(event_log_add(&l, EVENT_OPENED, -1, NULL, 0), 1);
    assert_int_equal(event_log_add(&l, EVENT_STARTED, 0, NULL, 0), 2);
    for (int i = 0; i < 5; i++) assert_int_equal(event_log_add_token(&l, 0, i), 3 + i);
    assert_int_equal(event_log_add(&l, EVENT_UPDATED, -1, NULL, 0), 8);
    for (int i = 5; i < 9; i++) assert_int_equal(event_log_add_token(&l, 0, i), 4 + i);
    assert_int_equal(l.n, 5);
    assert_int_equal(event_log_find(&l, 7)->rec.seq, 3);
    assert_int_equal(event_log_find(&l, 9)->first_token, 5);
    assert_null(event_log_find(&l, 0));
    assert_null(event_log_find(&l, 13));
    assert_int_equal(event_log_next_fact(&l, 2), 8);
    assert_int_equal(event_log_next_fact(&l, 8), 0);
    assert_int_equal(event_log_tokens_upto(&l, 0, 5), 3);
    assert_int_equal(event_log_tokens_upto(&l, 0, 8), 5);
    assert_int_equal(event_log_tokens_upto(&l, 0, 10), 7);
    assert_int_equal(event_log_tokens_upto(&l, 1, 10), 0);
    event_log_remove(&l, 4); // a delta: stays
    assert_int_equal(event_log_seq(&l), 12);
    event_log_remove(&l, 8);
    assert_int_equal(event_log_seq(&l), 11);
    assert_int_equal(l.n, 3); // the two runs of deltas are merged into one
    assert_int_equal(event_log_find(&l, 11)->rec.n, 9);
    event_log_release(&l);
}

static void lost_numbers_are_known_as_lost(void **state) {
    struct event_log l;
    event_log_init(&l);
    event_log_add(&l, EVENT_OPENED, -1, NULL, 0);
    assert_int_equal(event_log_add_lost(&l, 10, 0, 5), 11);
    assert_int_equal(event_log_add(&l, EVENT_DONE, 0, NULL, 0), 12);
    assert_false(event_log_is_lost(&l, 1)); // has what was committed
    assert_int_equal(event_log_find(&l, 5)->rec.at_ms, 5);
    for (int i = 2; i < 11; i++) assert_true(event_log_is_lost(&l, i));
    assert_false(event_log_is_lost(&l, 11)); // no client can have seen numbers beyond the reserve
    assert_false(event_log_is_lost(&l, 12));
    event_log_release(&l);
}

// Compared with the simplest form: an array with one element for each number.
static void the_numbering_against_a_plain_list(void **state) {
    enum { MAX = 4000 };
    static struct { int kind, turn, token; } plain[MAX];
    struct event_log l;
    int n = 0, turn = 0, token = 0;
    event_log_init(&l);
    srandom(7);
    while (n < MAX - 1) {
        int what = (int)(random() % 10);
        if (what < 7) {
            plain[n].kind = EVENT_DELTA, plain[n].turn = turn, plain[n].token = token;
            assert_int_equal(event_log_add_token(&l, turn, token++), ++n);
        } else if (what < 9) {
            if (what == 8) turn++, token = 0;
            plain[n].kind = EVENT_UPDATED, plain[n].turn = -1, plain[n].token = 0;
            assert_int_equal(event_log_add(&l, EVENT_UPDATED, -1, NULL, 0), ++n);
        } else if (n > 0) {
            int at = (int)(random() % n);
            event_log_remove(&l, at + 1);
            if (plain[at].kind == EVENT_DELTA) continue;
            memmove(&plain[at], &plain[at + 1], (size_t)(n - at - 1) * sizeof *plain);
            n--;
        }
        assert_int_equal(event_log_seq(&l), n);
    }
    for (int i = 0; i < n; i++) {
        const struct event_entry *e = event_log_find(&l, i + 1);
        assert_int_equal(e->rec.kind, plain[i].kind);
        assert_int_equal(e->rec.turn, plain[i].turn);
        if (plain[i].kind == EVENT_DELTA)
            assert_int_equal(e->first_token + i + 1 - e->rec.seq, plain[i].token);
    }
    event_log_release(&l);
}

static void expect_title(const char *text, const char *title) {
    char out[SESSION_AUTO_TITLE_BYTES];
    title_from(text, strlen(text), out, sizeof out);
    assert_string_equal(out, title);
}
static void titles(void **state) {
    expect_title("", "");
    expect_title(" \n\t ", "");
    expect_title("  a \r\n b\t\tc  ", "a b c");
    expect_title("a\x01z", "a?z");
    expect_title("0123456789 123456789 123456789 123456789 123456789 12345",
                 "0123456789 123456789 123456789 123456789 123456789 12345");
    expect_title("0123456789 123456789 123456789 123456789 123456789 123456789 ",
                 "0123456789 123456789 123456789 123456789 123456789\xe2\x80\xa6");
    // Characters are never cut: 28 of two bytes are as many as there is room for.
    expect_title("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                 "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                 "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                 "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                 "\xc3\xa9\xc3\xa9",
                 "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                 "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                 "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                 "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
                 "\xe2\x80\xa6");
}

// Neither an empty message nor half a character is the title of a conversation.
static void titles_need_words(void **state) {
    assert_false(title_has_words(NULL, 0));
    assert_false(title_has_words(" \n", 2));
    assert_false(title_has_words("\xef\xbf\xbd \xef\xbf\xbd", 7));
    assert_true(title_has_words("\xef\xbf\xbd a", 5));
    assert_true(title_has_words("\xef\xbf", 2));
    assert_true(title_has_words("***", 3));
}

static void titles_have_no_markdown(void **state) {
    expect_title("# Plan\n\n- **first** step\n- second", "Plan first step second");
    expect_title("**Bold** and *slanted*, ~~gone~~ `code`", "Bold and slanted, gone code");
    expect_title("***both*** (*x*)", "both (x)");
    expect_title("> quoted\n>> twice", "quoted twice");
    expect_title("See [the manual](https://example.org/a_b) and ![a cat](cat.png).",
                 "See the manual and a cat.");
    expect_title("[**bold** link](x)", "bold link");
    expect_title("```c\n# include *p* `q`\n```\nWhy?", "# include *p* `q` Why?");
    expect_title("```all of it``` here", "all of it here");
    expect_title("`` a ` b ``", "a ` b");
    expect_title("`**kept**` \\*kept\\*", "**kept** *kept*");
    expect_title("Title\n=====\nText", "Title Text");
    expect_title("---\nfront", "front");
    // What may be no mark stays.
    expect_title("What is 2 * 3 * 4?", "What is 2 * 3 * 4?");
    expect_title("int *p, *q; a*b*c", "int *p, *q; a*b*c");
    expect_title("def f(*args, **kwargs)", "def f(*args, **kwargs)");
    expect_title("snake_case, __init__ and C#", "snake_case, __init__ and C#");
    expect_title("#include <a.h> #1", "#include <a.h> #1");
    expect_title("a[1](2) [x] [](y) `open ~/dir~", "a1 [x] [](y) `open ~/dir~");
    expect_title("-5 + 3 - 2", "-5 + 3 - 2");
    expect_title("~~~~~~ **", "~~~~~~ **");
    // A text that is nothing but marks is its title.
    expect_title("***", "***");
    expect_title("```python", "```python");
}

// A text made to cost time: each mark looks for its counterpart.
static void titles_of_marks_without_an_end(void **state) {
    static char text[1 << 20];
    static const char *const marks[] = {"[", "![", "*a ", "`a``", "**a*", "~~a", "> ", "[a]("};
    for (size_t m = 0; m < sizeof marks / sizeof marks[0]; m++) {
        size_t n = strlen(marks[m]);
        for (size_t i = 0; i + n < sizeof text; i += n) memcpy(text + i, marks[m], n);
        char out[SESSION_AUTO_TITLE_BYTES];
        title_from(text, sizeof text - 8, out, sizeof out);
        assert_true(strlen(out) < sizeof out && out[0]);
    }
}

// As the page writes them (withFiles in web/src/attachments.js).
static void titles_leave_out_files(void **state) {
    expect_title("File: a b.txt\n```\none\n```\n\nWhat is **this**?", "What is this?");
    expect_title(
        "File: a.c\n````c\n```\nx\n```\n````\n\nFile: b.md\n```markdown\n# No\n```\n\nAnd these?",
        "And these?");
    expect_title("File: report_2.pdf\n```\none\n```", "report_2.pdf");
    expect_title("File: a.c\n```c\n```\n\nFile: b.c\n```c\n```", "a.c");
    // No file: the block has no end, a longer one, or there is none.
    expect_title("File: a.txt\n```\nopen", "File: a.txt open");
    expect_title("File: a.txt\n```\nopen\n````\n", "File: a.txt open");
    expect_title("File: the tax return today", "File: the tax return today");
    expect_title("File: ", "File:");
    expect_title("File: \n```\nx\n```", "File: x");
}

static struct session *with_events(int n_deltas) {
    struct session *s = session_new(NULL, "local", "s", LIFE_OPENING);
    event_log_add(&s->events, EVENT_OPENED, -1, NULL, 0);
    event_log_add(&s->events, EVENT_STARTED, 0, NULL, 0);
    for (int i = 0; i < n_deltas; i++) event_log_add_token(&s->events, 0, i);
    return s;
}

static void facts_wait_for_their_commit_and_deltas_for_their_numbers(void **state) {
    struct session *s = with_events(5);
    s->safe_seq = INT64_MAX; // a delta needs only its reserved number, no commit
    assert_int_equal(session_tellable(s), 0);
    s->saved_seq = s->saved_reserved = 1;
    assert_int_equal(session_tellable(s), 1);
    s->saved_seq = 2, s->saved_reserved = 4;
    assert_int_equal(session_tellable(s), 4); // two deltas have reserved numbers
    s->saved_reserved = 100;
    assert_int_equal(session_tellable(s), 7);
    event_log_add(&s->events, EVENT_DONE, 0, NULL, 0);
    event_log_add(&s->events, EVENT_UPDATED, -1, NULL, 0);
    assert_int_equal(session_tellable(s), 7);
    s->saved_seq = 8;
    assert_int_equal(session_tellable(s), 8);
    session_free(s);
}

static void taking_back_moves_later_numbers_up(void **state) {
    struct session *s = with_events(2);
    struct turn *a = turn_new(), *b = turn_new();
    a->rec.turn = 0, a->rec.log_first = 0, a->rec.seq_first = 2;
    b->rec.turn = 1, b->state = TURN_QUEUED;
    session_log_reserve(s, 4);
    s->n_log = 4;
    tree_add_turn(s, a);
    tree_add_turn(s, b);
    s->n_queued = 1;
    s->running = 0;
    b->rec.seq_first = event_log_add(&s->events, EVENT_QUEUED, 1, NULL, 0);
    event_log_add_token(&s->events, 0, 2);
    a->rec.seq_last = event_log_add(&s->events, EVENT_DONE, 0, NULL, 0);
    tree_pop_turn(s);
    assert_int_equal(s->n_queued, 0);
    assert_int_equal(a->rec.seq_last, 6);
    assert_int_equal(event_log_seq(&s->events), 6);
    assert_int_equal(event_log_find(&s->events, 5)->rec.n, 3); // one run again
    assert_int_equal(s->n_log, 4);
    tree_pop_turn(s); // with its tokens
    assert_int_equal(event_log_seq(&s->events), 1);
    assert_int_equal(s->n_log, 0);
    assert_int_equal(s->running, -1);
    session_free(s);
}

// sessions.h has the picture: an engine may fail before or after it began the turn, and any turn can end.
static void a_turn_goes_from_state_to_state(void **state) {
    static const bool leads[N_TURN_STATES][N_TURN_STATES] = {
        [TURN_QUEUED] = {[TURN_PREPARING] = true, [TURN_SUBMITTED] = true, [TURN_DONE] = true},
        [TURN_PREPARING] = {[TURN_QUEUED] = true, [TURN_DONE] = true},
        [TURN_SUBMITTED] = {[TURN_RUNNING] = true, [TURN_DONE] = true},
        [TURN_RUNNING] = {[TURN_SUBMITTED] = true, [TURN_DONE] = true},
    };
    for (int from = 0; from < N_TURN_STATES; from++)
        for (int to = 0; to < N_TURN_STATES; to++)
            assert_int_equal(turn_leads_to(from, to), leads[from][to]);
}

// README.md has the table of life.c: state by state, with what it leads to.
static void the_readme_shows_the_states(void **state) {
    char line[512], row[512];
    FILE *f = fopen("sessions/README.md", "r");
    int n = 0, leads = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        for (int from = 0; from < N_LIVES; from++) {
            snprintf(row, sizeof row, "| `%s` |", life_name(from));
            if (strncmp(line, row, strlen(row)) != 0) continue;
            const char *next = strrchr(line, '|'); // the last cell
            while (next > line && next[-1] != '|') next--;
            for (int to = 0; to < N_LIVES; to++) {
                snprintf(row, sizeof row, "`%s`", life_name(to));
                if (!strstr(next, row) != !life_leads_to(from, to))
                    fail_msg("%s -> %s: %s", life_name(from), life_name(to), line);
                leads += life_leads_to(from, to);
            }
            n++;
        }
    }
    fclose(f);
    assert_int_equal(n, N_LIVES);
    assert_true(leads >= N_LIVES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_no_gap_and_runs_are_joined),
        cmocka_unit_test(lost_numbers_are_known_as_lost),
        cmocka_unit_test(the_numbering_against_a_plain_list),
        cmocka_unit_test(titles),
        cmocka_unit_test(titles_need_words),
        cmocka_unit_test(titles_have_no_markdown),
        cmocka_unit_test(titles_leave_out_files),
        cmocka_unit_test(titles_of_marks_without_an_end),
        cmocka_unit_test(a_turn_goes_from_state_to_state),
        cmocka_unit_test(the_readme_shows_the_states),
        cmocka_unit_test(facts_wait_for_their_commit_and_deltas_for_their_numbers),
        cmocka_unit_test(taking_back_moves_later_numbers_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
