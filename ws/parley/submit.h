// From a message to the call of the session service that it asks for.
#pragma once
#include "ws/parley/protocol.h"

// Net thread. Nothing for messages that are not about sessions (hello, ping, sessions.watch).
void message_submit(const struct message *m, struct sessions *ss, const struct sessions_request *r);
