#!/bin/sh
# Builds the program twice, in two folders whose paths differ in name and length, without ccache, and compares the
# bytes. A difference is listed: sections of the program first, then the objects that differ.
# usage: check_reproducible.sh [MAKE VARIABLES...]   for example CUDA=1; from the project's root
set -eu
work=$(mktemp -d "${TMPDIR:-/tmp}/parley-builds-XXXXXX")
trap 'rm -rf "$work"' EXIT
one=$work/one two=$work/another-folder/with/a-longer-path
COMMIT=$(git describe --always --dirty --abbrev=12 --exclude='*')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export COMMIT SOURCE_DATE_EPOCH CCACHE_DISABLE=1
# Both copies are taken now: the sources may change during the first build.
mkdir -p "$one" "${two%/*}"
git ls-files -z | tar -c --null -T - | tar -x -C "$one"
(umask 077 && cp -r "$one" "$two")
for folder in "$one" "$two"; do
    # Another time zone, language and umask too: none of them may reach the program.
    if [ "$folder" = "$two" ]; then export TZ=Asia/Tokyo LC_ALL=C.UTF-8; umask 077; fi
    make -C "$folder" --no-print-directory -s -j"$(nproc)" "$@" all >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
done
if cmp "$one/build/release/parley" "$two/build/release/parley"; then
    sha256sum "$one/build/release/parley" | sed 's| .*||; s|^|two builds, the same bytes: sha256 |'
    exit 0
fi
for section in .text .rodata .data .debug_info .debug_str .debug_line .debug_line_str .note.gnu.build-id; do
    for folder in "$one" "$two"; do
        objcopy -O binary --only-section="$section" --set-section-flags "$section=alloc" \
            "$folder/build/release/parley" "$work/section-of-${folder##*/}" 2>/dev/null || :
    done
    cmp -s "$work/section-of-one" "$work/section-of-a-longer-path" || echo "differs: section $section"
done
(cd "$one/build/release" && find . -name '*.o' | sort) | while read -r object; do
    cmp -s "$one/build/release/$object" "$two/build/release/$object" || echo "differs: $object"
done
exit 1
