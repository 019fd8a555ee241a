#!/usr/bin/env bash
# Fails where a kernel keeps anything in local memory on a GPU that can run it:
#
#     spills.sh [FILE.ptx …]    all without arguments
#
# Needs NVIDIA's ptxas (PyPI: nvidia-cuda-nvcc); MT_PTXAS says where it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
ptxas=${MT_PTXAS:-ptxas}
command -v "$ptxas" >/dev/null || { echo "$ptxas is not installed (PyPI: nvidia-cuda-nvcc; or set MT_PTXAS)" >&2; exit 1; }
[ $# -gt 0 ] || set -- *.ptx
bad=0
for source in "$@"; do
	for arch in 80 86 89 90a 100 120; do
		report=$("$ptxas" -v -arch="sm_$arch" "$source" -o /dev/null 2>&1) || { echo "$report" >&2; exit 1; }
		found=$(awk -v at="$source sm_$arch" '
			/Compiling entry/ { split($0, part, "\047"); kernel = part[2] }
			/bytes stack frame/ && $0 !~ / 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads/ { print at, kernel ":", $0 }' <<<"$report")
		[ -z "$found" ] || { echo "$found"; bad=1; }
	done
done
exit $bad
