#!/bin/sh
# Builds the program twice, in two folders whose paths differ in name and length, without ccache, and compares the
# bytes. A difference is listed: sections of the program first, then the objects that differ.
# With CUDA=1 both builds are in the same folder: nvcc takes the path of a kernel's source into names of symbols.
# usage: check_reproducible.sh [MAKE VARIABLES...]   for example CUDA=1 REPRODUCIBLE=1; from the project's root
set -eu
work=$(mktemp -d "${TMPDIR:-/tmp}/parley-builds-XXXXXX")
trap 'rm -rf "$work"' EXIT
COMMIT=$(git describe --always --dirty --abbrev=12 --exclude='*')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export COMMIT SOURCE_DATE_EPOCH CCACHE_DISABLE=1
# One copy is taken now: the sources may change during the first build.
mkdir -p "$work/sources"
git ls-files -z | tar -c --null -T - | tar -x -C "$work/sources"
folder=$work/one
for build in "$work/first" "$work/second"; do
    if [ "$build" = "$work/second" ]; then
        # Another time zone, language and umask too, and cp gives the sources other times: none of them may reach the
        # program.
        export TZ=Asia/Tokyo LC_ALL=C.UTF-8
        umask 077
        case " $* " in *" CUDA=1 "*) ;; *) folder=$work/another-folder/with/a-longer-path ;; esac
    fi
    mkdir -p "${folder%/*}"
    cp -r "$work/sources" "$folder"
    make -C "$folder" --no-print-directory -s -j"$(nproc)" "$@" all >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
    mv "$folder/build/release" "$build"
    rm -rf "$folder"
done
if cmp "$work/first/parley" "$work/second/parley"; then
    sha256sum "$work/first/parley" | sed 's| .*||; s|^|two builds, the same bytes: sha256 |'
    exit 0
fi
for section in .text .rodata .data .nv_fatbin .debug_info .debug_str .debug_line .debug_line_str .note.gnu.build-id; do
    for build in "$work/first" "$work/second"; do
        objcopy -O binary --only-section="$section" --set-section-flags "$section=alloc" "$build/parley" "$build/section" \
            2>/dev/null || :
    done
    cmp -s "$work/first/section" "$work/second/section" || echo "differs: section $section"
done
(cd "$work/first" && find . -name '*.o' | sort) | while read -r object; do
    cmp -s "$work/first/$object" "$work/second/$object" || echo "differs: $object"
done
exit 1
