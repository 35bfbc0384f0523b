// Moving the head of a session's tree, and back. See head.h, tree.h.
//
// A move is an event, `rewound`, and a change of the path in memory. Its commit is the next save's,
// together with the turn that it was made for. The engine need not know: it compares each turn's log
// with its cache, and keeps what agrees.
#include "sessions/saving/head.h"
#include "base/err.h"
#include "sessions/clients/answers.h"
#include "sessions/state/title.h"
#include "sessions/state/tree.h"

bool head_can_move(struct session *s, const struct request *r, int64_t turn) {
    struct sessions *ss = s->service;
    const struct turn *t = session_turn(s, turn);
    if (s->rec.closed_ms || session_is_closing(s))
        refuse(ss, r, "session_closed", "the session is closed: it can be read, not continued");
    else if (session_has_turn(s))
        refuse(ss, r, "session_busy",
               "a turn of this session is running: it cannot be rewound now");
    else if (turn != TURN_NONE && (!t || turn_was_erased(&t->rec)))
        refuse(ss, r, "invalid", "the session has no turn %lld", (long long)turn);
    else
        return true;
    return false;
}

int head_move(struct session *s, int64_t turn, const char *why, struct pending *p) {
    TRY(event_log_reserve(&s->events, 1));
    TRY(tree_move(s, turn, &p->cut));
    p->rewound_seq =
        event_log_add(&s->events, EVENT_REWOUND, turn, why, service_now_ms(s->service));
    s->rec.updated_ms = service_now_ms(s->service);
    s->version++;
    s->marks |= MARK_WATCHERS;
    title_follow(s, p);
    return 0;
}

void head_move_back(struct session *s, struct pending *p) {
    if (!p->rewound_seq) return;
    session_remove_event(s, p->rewound_seq);
    p->rewound_seq = 0;
    tree_move_back(s, &p->cut);
    title_restore(s, p);
    s->rec.updated_ms = p->updated_ms;
    s->version++;
    s->marks |= MARK_WATCHERS;
}
