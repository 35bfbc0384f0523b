#!/bin/sh
# Checks that the layers see each other as they should, by their #include lines:
#     ws -> sessions -> engine -> kvcache -> kernels -> base, never upward.
# sessions and ws see the engine through engine/engine.h alone, and nothing of kvcache or kernels.
# sessions/store sees nothing else of sessions; sessions/archive sees the store alone. The other rooms of sessions see
# the rooms before them in the list of sessions/README.md, and sessions/sessions.h.
# Programs (main*.c) see all. Includes of ours are rooted in the tree's top, and no file is called
# common, utils or types: such a file has no subject, so everything ends up in it. No file is empty.
#
# usage: check_layers.sh [TOP]         each fault as FILE:LINE: sentence; exit 1 when there is one
#        check_layers.sh --self-check  only the check of the checker, which each run begins with: plants
#                                      faults in a temporary tree and expects each to be found
set -eu

check() {
    cd "$1"
    find base kernels kvcache engine sessions ws tests \
        \( -name build -o -name node_modules \) -prune -o -type f \
        \( -name '*.c' -o -name '*.h' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' \) -print \
        2>/dev/null | LC_ALL=C sort >"$list"
    awk '
    function fault(line, sentence) {
        printf "%s:%d: %s\n", file, line, sentence
        n_faults++
    }
    # What may be included from where: the first name of each path, as "from>to".
    BEGIN {
        n = split("base>base kernels>base kernels>kernels kvcache>base kvcache>kernels " \
                  "kvcache>kvcache engine>base engine>kernels engine>kvcache engine>engine " \
                  "sessions>base sessions>sessions ws>base ws>sessions ws>ws", pairs, " ")
        for (i = 1; i <= n; i++) allowed[pairs[i]] = 1
        n = split("base kernels kvcache engine sessions ws tests", names, " ")
        for (i = 1; i <= n; i++) is_root[names[i]] = 1
        n = split("matching engines state caches clients saving turns replay requests migration", names, " ")
        for (i = 1; i <= n; i++) rank["sessions/" names[i]] = i
    }
    # What a room of sessions may include of sessions.
    function is_below(path,    from, to) {
        from = file
        to = path
        sub(/\/[^\/]*$/, "", from)
        sub(/\/[^\/]*$/, "", to)
        if (from == "sessions/store") return to == from
        if (from == "sessions/archive") return to == from || to == "sessions/store"
        if (!(from in rank)) return from == "sessions" # a new room needs its place in the list
        return path == "sessions/sessions.h" || to == "sessions/store" || to == "sessions/archive" ||
               ((to in rank) && rank[to] <= rank[from])
    }
    function check_include(line, path, quoted,    root) {
        root = path
        sub(/\/.*/, "", root)
        if (!(root in is_root) || root == path) {
            if (quoted)
                fault(line, "\"" path "\" is not rooted: begin with a layer, as in \"base/err.h\"")
            return
        }
        if (!quoted) fault(line, "<" path "> is ours: write it in quotes")
        if (path ~ /(^|\/)\.\.?\//) fault(line, "\"" path "\" climbs: name the file from the top")
        if (layer == "sessions" && root == "sessions" && !is_below(path)) fault(line, "\"" path "\" is above this folder")
        if (layer == "tests") return
        if (root == "tests") {
            fault(line, "\"" path "\" belongs to the tests")
        } else if (!program && !((layer ">" root) in allowed) &&
                   !((layer == "sessions" || layer == "ws") && path == "engine/engine.h")) {
            if (root == "engine" && (layer == "sessions" || layer == "ws"))
                fault(line, layer " sees the engine through engine/engine.h, not \"" path "\"")
            else
                fault(line, layer " must not see \"" path "\"")
        }
    }
    {
        file = $0
        layer = file
        sub(/\/.*/, "", layer)
        base = file
        sub(/.*\//, "", base)
        program = base ~ /^main.*\.c$/
        if (base ~ /^(common|utils|types)\.[a-z]+$/)
            fault(1, "a file named after nothing in particular: name it after its noun")
        line = 0
        while ((getline text < file) > 0) {
            line++
            if (text !~ /^[ \t]*#[ \t]*include[ \t]*["<]/) continue
            quoted = text ~ /include[ \t]*"/
            sub(/^[ \t]*#[ \t]*include[ \t]*["<]/, "", text)
            sub(/[">].*/, "", text)
            check_include(line, text, quoted)
        }
        close(file)
        if (line == 0) fault(1, "empty: what a file of this name had has gone elsewhere")
    }
    END { exit n_faults > 0 }
    ' "$list"
}

# plant faulty|clean FILE TEXT: a tree of one file, which must be found faulty in line 1 or 2, or clean. No TEXT: it is empty.
plant() {
    rm -rf "$work/tree"
    mkdir -p "$work/tree/$(dirname "$2")"
    if [ "$3" ]; then printf '// planted\n%s\n' "$3"; fi >"$work/tree/$2"
    if (check "$work/tree") >"$work/out"; then found=clean; else found=faulty; fi
    [ "$found" = faulty ] && ! grep -q "^$2:[12]: ." "$work/out" && found="faulty elsewhere"
    if [ "$found" != "$1" ]; then
        echo "check_layers.sh: $2 with '$3' was $found, not $1"
        exit 1
    fi
}

self_check() {
    plant faulty base/x.c '#include "kernels/backend.h"'
    plant faulty base/x.h '#include "engine/engine.h"'
    plant faulty kernels/cuda/x.cu '#include "kvcache/ring.h"'
    plant faulty kvcache/x.c '  #  include "engine/run/batch.h" // spaced'
    plant faulty engine/run/x.c '#include "sessions/sessions.h"'
    plant faulty engine/x.h '#include "ws/net/server.h"'
    plant faulty sessions/x.c '#include "ws/net/server.h"'
    plant faulty sessions/x.c '#include "engine/text/tokenizer.h"'
    plant faulty sessions/x.c '#include "kvcache/ring.h"'
    plant faulty sessions/store/x.c '#include "sessions/state/turn.h"'
    plant faulty sessions/store/x.h '#include "sessions/sessions.h"'
    plant faulty sessions/store/x.c '#include "sessions/archive/archive.h"'
    plant faulty sessions/store/x.c '#include "sessions/storehouse.h"'
    plant faulty sessions/archive/x.c '#include "sessions/state/session.h"'
    plant faulty sessions/state/x.c '#include "sessions/turns/input.h"'
    plant faulty sessions/state/x.h '#include "sessions/engine_events.h"'
    plant faulty sessions/matching/x.c '#include "sessions/state/turn.h"'
    plant faulty ws/api/x.c '#include "kernels/backend.h"'
    plant faulty ws/x.c '#include "engine/model/model.h"'
    plant faulty ws/domain.c '#include "engine/model/model.h"'
    plant faulty base/x.c '#include "err.h"'
    plant faulty engine/text/x.c '#include "text/vocab.h"'
    plant faulty engine/text/x.c '#include "../engine.h"'
    plant faulty engine/text/x.c '#include "engine/text/../engine.h"'
    plant faulty base/x.c '#include <base/err.h>'
    plant faulty base/x.c '#include "tests/unit/fake.h"'
    plant faulty ws/main.c '#include "server.h"'
    plant faulty tests/unit/test_x.c '#include "fake.h"'
    plant faulty base/common.h 'int x;'
    plant faulty engine/model/types.h 'int x;'
    plant faulty ws/utils.c 'int x;'
    plant faulty engine/run/x.c ''
    plant clean base/x.c '#include "base/err.h"'
    plant clean kernels/x.c '#include <stdio.h>'
    plant clean kvcache/x.c '#include "kernels/backend.h"'
    plant clean engine/x.c '#include "kvcache/ring.h"'
    plant clean sessions/x.c '#include "engine/engine.h"'
    plant clean sessions/x.c '#include "sessions/archive/archive.h"'
    plant clean sessions/store/x.c '#include "sessions/store/record.h"'
    plant clean sessions/archive/x.c '#include "sessions/store/db.h"'
    plant clean sessions/archive/x.c '#include "sessions/archive/check.h"'
    plant clean sessions/turns/x.c '#include "sessions/state/turn.h"'
    plant clean sessions/turns/x.c '#include "sessions/archive/archive.h"'
    plant clean sessions/matching/x.c '#include "sessions/sessions.h"'
    plant clean sessions/x.c '#include "sessions/requests/settle.h"'
    plant clean ws/x.c '#include "sessions/state/session.h"'
    plant clean ws/main.c '#include "engine/model/model.h"'
    plant clean ws/cli/main_bench.c '#include "kernels/backend.h"'
    plant clean tests/unit/test_x.c '#include "base/json.c"'
    plant clean base/x.c '// #include "engine/engine.h"'
    plant clean base/x.c 'const char *types_h = "types.h";'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
list=$work/list
case ${1-} in
--self-check)
    self_check
    echo "check_layers.sh: every planted fault was found"
    ;;
*)
    self_check
    check "${1:-$(dirname "$0")/..}"
    ;;
esac
