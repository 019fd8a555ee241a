#!/usr/bin/env bash
# Assembles every .ptx for every kind of GPU that mt runs on and prints, for each
# kernel, its static shared memory in bytes and its registers a thread; fails
# when a file does not assemble or a kernel keeps anything in local memory, be it
# an array or registers that are spilled. registers.txt has what is printed for all
# files, and differing from it is a failure too. What ends in _sm90a.ptx is for
# that architecture alone; there ptxas must not put a product's instructions one
# after the other where they could overlap, which it would say:
#
#     check.sh                 all files
#     check.sh -rewrite        all files; writes registers.txt
#     check.sh FILE.ptx …      some files, which are not compared with registers.txt
#
# MT_PTXAS is the path of NVIDIA's ptxas (PyPI: nvidia-cuda-nvcc), where it is
# not in PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export ptxas=${MT_PTXAS:-ptxas}
command -v "$ptxas" >/dev/null || { echo "$ptxas is not installed (MT_PTXAS names it; PyPI: nvidia-cuda-nvcc)" >&2; exit 1; }
rewrite=no
[ "${1-}" != -rewrite ] || { rewrite=yes; shift; }
[ "$rewrite" = no ] || [ $# -eq 0 ] || { echo "check.sh -rewrite takes no files: registers.txt has them all" >&2; exit 2; }
whole=no
[ $# -gt 0 ] || { whole=yes; set -- *.ptx; }
architectures="80 86 89 90a 100 120"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export out

assemble() { # FILE ARCHITECTURE
	local log
	log=$out/$(basename "$1").$2
	"$ptxas" -v -arch="sm_$2" "$1" -o "$log.cubin" >"$log" 2>&1 || { sed "s|^|$1 sm_$2: |" "$log" >&2; rm "$log"; return 1; }
	rm "$log.cubin"
	! grep -i "wgmma.*serialized" "$log" >&2
}
export -f assemble
failed=0
for file; do for a in $architectures; do
	[[ $file != *_sm90a.ptx || $a = 90a ]] || continue
	printf '%s\0%s\0' "$file" "$a"
done; done |
	xargs -0 -n 2 -P "$(nproc)" bash -c 'assemble "$@"' _ || failed=1

# One line for every kernel; local memory is an exclamation mark and its bytes a
# thread.
for file; do
	for a in $architectures; do [ ! -f "$out/$(basename "$file").$a" ] || cat "$out/$(basename "$file").$a"; done
done | awk -v architectures="$architectures" '
/Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; arch = substr(part[4], 4)
	if (!(kernel in known)) { known[kernel] = 1; kernels[++count] = kernel }
	spill = 0 }
/bytes stack frame/ { spill = $1 > $5 ? $1 : $5 }
/Used [0-9]+ registers/ { match($0, /Used [0-9]+/); cell = substr($0, RSTART + 5, RLENGTH - 5)
	if (match($0, /[0-9]+ bytes smem/)) { bytes = substr($0, RSTART, RLENGTH) + 0; if (bytes > shared[kernel]) shared[kernel] = bytes }
	if (spill) { cell = cell "!" spill; spills++ }
	registers[kernel, arch] = cell }
END {
	columns = split(architectures, archs, " ")
	printf "%-36s %7s", "kernel", "shared"
	for (i = 1; i <= columns; i++) printf " %8s", "sm_" archs[i]
	print ""
	for (k = 1; k <= count; k++) {
		printf "%-36s %7d", kernels[k], shared[kernels[k]]
		for (i = 1; i <= columns; i++) printf " %8s", (kernels[k], archs[i]) in registers ? registers[kernels[k], archs[i]] : "-"
		print ""
	}
	if (spills) { print "those marked ! use local memory" > "/dev/stderr"; exit 1 }
}' >"$out/table" || failed=1
cat "$out/table"
[ "$whole" = yes ] && [ $failed -eq 0 ] || exit $failed
[ "$rewrite" = no ] || cp "$out/table" registers.txt
diff -u registers.txt "$out/table" >&2 || { echo "registers.txt has other numbers: check.sh -rewrite writes it anew, with the ptxas that cudart/testdata/toolkit.sh fetches" >&2; exit 1; }
