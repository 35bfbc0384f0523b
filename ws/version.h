// The version that hello, the Server header and --version show.
#pragma once
#define PARLEY_VERSION "0.1.0"
