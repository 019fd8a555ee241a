#!/usr/bin/env bash
# Writes op.ptx beside every op.cu with the flags of the shipped kernels.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
clang=${MT_CLANG:-clang-19}
for source in *.cu; do
	out=${source%.cu}.ptx
	"$clang" -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudainc -nocudalib -Xclang -target-feature -Xclang +ptx80 \
		-std=c++20 -O3 -Wall -Werror -Wno-unused-function -I../../../../device/cuda/kernels -S -o "$out.new" "$source"
	sed -i -e '/^[[:space:]]*\/\//d' -e '/^$/d' "$out.new"
	mv "$out.new" "$out"
done
