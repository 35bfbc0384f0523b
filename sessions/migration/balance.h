// Hands idle sessions of a hot instance to another one of its model. Net thread only.
#pragma once
#include "sessions/state/service.h"

void balance_go_on(struct sessions *ss); // hands idle sessions of hot instances over; call it often
