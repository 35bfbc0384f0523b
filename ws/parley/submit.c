// One call for each type of message: what was decoded (protocol.c) goes to who does it. See
// submit.h.
#include "ws/parley/submit.h"
#include "sessions/debug.h"
#include "sessions/transfer.h"
#include <string.h>

void message_submit(const struct message *m, struct sessions *ss,
                    const struct sessions_request *r) {
    switch (m->type) {
    case MESSAGE_SESSION_OPEN:
        sessions_open_session(ss, r, &m->open);
        break;
    case MESSAGE_SESSION_ATTACH:
        sessions_attach(ss, r, m->session, m->after);
        break;
    case MESSAGE_SESSION_DETACH:
        sessions_detach(ss, r, m->session);
        break;
    case MESSAGE_SESSION_TYPING:
        sessions_typing(ss, r, m->session);
        break;
    case MESSAGE_SESSION_GET:
        sessions_get(ss, r, m->session, m->attach, m->last, m->before);
        break;
    case MESSAGE_SESSION_LIST:
        sessions_list(ss, r, m->query, m->forked_from, m->limit, m->cursor);
        break;
    case MESSAGE_SESSION_UPDATE:
        sessions_update(ss, r, m->session, m->title, m->sampling, m->cancel_after_ms);
        break;
    case MESSAGE_SESSION_CLOSE:
        sessions_close_session(ss, r, m->session, m->delete_it);
        break;
    case MESSAGE_TURN_START:
        sessions_start_turn_after(ss, r, m->session, m->after, &m->input, m->sampling, m->queue);
        break;
    case MESSAGE_TURN_CANCEL:
        if (m->replay)
            sessions_cancel_replay(ss, r, m->session);
        else
            sessions_cancel_turn(ss, r, m->session, m->turn);
        break;
    case MESSAGE_TURN_GET:
        sessions_turn_get(ss, r, m->session, m->turn);
        break;
    case MESSAGE_TURN_REPLAY:
        sessions_replay(ss, r, m->session, m->turn);
        break;
    case MESSAGE_SESSION_EVENTS:
        sessions_events(ss, r, m->session, m->before, m->last);
        break;
    case MESSAGE_SESSION_REWIND:
        sessions_rewind(ss, r, m->session, m->turn, m->leaf);
        break;
    case MESSAGE_SESSION_FORK:
        sessions_fork(
            ss, r, m->session,
            &(struct session_fork){.turn = m->turn, .new_id = m->new_session, .title = m->title});
        break;
    case MESSAGE_TURN_REGENERATE:
        sessions_regenerate(ss, r, m->session, m->turn, m->sampling);
        break;
    case MESSAGE_SESSION_EXPORT:
        sessions_export(ss, r, m->session);
        break;
    case MESSAGE_SESSION_IMPORT:
        sessions_import(ss, r, m->archive, strlen(m->archive));
        break;
    case MESSAGE_HELLO:
    case MESSAGE_PING:
    case MESSAGE_SESSIONS_WATCH:
        break;
    }
}
