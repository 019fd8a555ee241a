#!/usr/bin/env bash
# Writes op.ptx beside every op.cu with Debian's clang-19. No CUDA toolkit is
# needed. Files that end in _sm90a.cu are for sm_90a alone, all others for sm_80
# and newer.
#
#     build.sh [FILE.cu …]    files of this folder; without arguments all of them,
#                             and those that the emulator's tests have
#
# MT_CLANG names another compiler. Its output then differs from what is
# committed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
clang=${MT_CLANG:-clang-19}
command -v "$clang" >/dev/null || { echo "$clang is not installed (Debian: apt-get install clang-19)" >&2; exit 1; }
[ $# -gt 0 ] || set -- *.cu ../../../cudart/emu/ptx/testdata/*.cu
for source in "$@"; do
	out=${source%.cu}.ptx
	architecture=sm_80
	[[ $source != *_sm90a.cu ]] || architecture=sm_90a
	"$clang" -x cuda --cuda-device-only --cuda-gpu-arch=$architecture -nocudainc -nocudalib -Xclang -target-feature -Xclang +ptx80 \
		-std=c++20 -O3 -Wall -Werror -Wno-unused-function -I. -S -o "$out.new" "$source"
	# The compiler writes its own build into comments, so they are left out.
	sed -i -e '/^[[:space:]]*\/\//d' -e '/^$/d' "$out.new"
	mv "$out.new" "$out"
done
