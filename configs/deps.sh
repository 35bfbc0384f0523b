#!/bin/sh
# Finds out what is missing to build (or test) Parley on Debian 12 or Ubuntu 24.04 and installs it with apt: as
# root or through sudo; a user who is neither gets the one line to run. Nothing missing: silent, no apt, no network.
# usage: configs/deps.sh build|test|fuzz
set -u
what=${1:-build}
missing=""

need() { # need PACKAGE COMMAND...: the package is missing unless the command succeeds
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
evlib() { ls /usr/lib/*/libwebsockets-evlib_uv.so* || ls /usr/local/lib/libwebsockets-evlib_uv.so*; }
header() { echo "#include <$1>" | gcc -E -x c -; }

need gcc gcc --version
need libc6-dev header stdlib.h
need pkg-config pkg-config --version
need libwebsockets-dev pkg-config --exists libwebsockets
need libwebsockets-evlib-uv evlib
need libuv1-dev pkg-config --exists libuv
need libedit-dev pkg-config --exists libedit
need libcjson-dev pkg-config --exists libcjson
need libcurl4-openssl-dev pkg-config --exists libcurl
need libsqlite3-dev pkg-config --exists sqlite3
need libpcre2-dev pkg-config --exists libpcre2-8
need libutf8proc-dev pkg-config --exists libutf8proc
need libssl-dev pkg-config --exists openssl
need zlib1g-dev pkg-config --exists zlib
need libinih-dev header ini.h
need uthash-dev header uthash.h
# nvcc, which needs no package here, leaves the host's part of a kernel to g++.
if command -v nvcc >/dev/null 2>&1 || [ -x /usr/local/cuda/bin/nvcc ]; then need g++ g++ --version; fi
need nodejs node --version
need npm npm --version
if [ "$what" = test ]; then
    # gRPC and ranks are optional: a build has them where these are found.
    need libgrpc-dev pkg-config --exists grpc
    need libprotobuf-c-dev pkg-config --exists libprotobuf-c
    need protobuf-c-compiler protoc-c --version
    need libopenmpi-dev command -v mpicc
    need openmpi-bin command -v mpirun
    need libcmocka-dev header cmocka.h
    need clang-format-14 clang-format-14 --version # each version formats otherwise
    need haproxy ls /usr/sbin/haproxy
    need openssl openssl version
    need sqlite3 sqlite3 --version
    need curl curl --version
    need mandoc command -v mandoc
    need util-linux setpriv --version
    # Ubuntu has Chromium as a snap only: there the tests take one from npm, which wants this library of the system's.
    browser() { [ -n "${CHROMIUM:-}" ] || command -v chromium-headless-shell || command -v chromium || command -v google-chrome || command -v google-chrome-stable; }
    if grep -q '^ID=ubuntu' /etc/os-release; then
        browser >/dev/null || { need libnss3 ls /usr/lib/*/libnss3.so; need fonts-dejavu-core ls /usr/share/fonts/truetype/dejavu; }
    else
        need chromium-headless-shell browser
        other_browser() { [ -n "${FIREFOX:-}" ] || command -v firefox-esr || command -v firefox; }
        need firefox-esr other_browser
    fi
fi
if [ "$what" = fuzz ]; then
    fuzzer() { echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | clang -fsanitize=fuzzer,address -x c - -o /dev/null; }
    need clang clang --version
    need libclang-rt-dev fuzzer # libFuzzer and the sanitizers: the package clang only recommends them
fi
[ -z "$missing" ] && exit 0

install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
    sudo=""
elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    sudo="sudo"
else
    echo "Parley needs packages that are not installed. Run this, then the same make command again:" >&2
    echo "    su -c 'apt-get update && $install'" >&2
    exit 1
fi
echo "Installing what is missing:$missing" >&2
$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo $install >&2 || {
    echo "apt could not install:$missing" >&2
    exit 1
}
