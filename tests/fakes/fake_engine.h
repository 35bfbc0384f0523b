// The part of engine.h that ws/ uses, without a model: for fake_sessions.c.
#pragma once
#include "engine/engine.h"

void fake_engine_lose_device(void); // from now on all engines report a lost device
