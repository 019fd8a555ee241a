#!/usr/bin/env bash
# Assembles every .ptx for every kind of GPU that mt runs on, by NVIDIA's ptxas, and prints, for
# each kernel, its static shared memory in bytes and its registers a thread. It fails if
#
# - a file does not assemble;
# - a kernel keeps anything in local memory, an array or spilled registers, unless spills.txt
#   accepts it of that ptxas;
# - ptxas serializes products of a warpgroup that could overlap;
# - a kernel uses registers that it has released by setmaxnreg (tools/maxregisters.go);
# - the printed table differs from registers.txt.
#
# Files that end in _sm90a.ptx are for sm_90a alone.
#
#     check.sh                 all files, by MT_PTXAS; files for sm_90a by the older ones too
#     check.sh -all [FILE …]   all files, or some, by all of them
#     check.sh -rewrite        all files, by MT_PTXAS; writes registers.txt
#     check.sh FILE.ptx …      some files; registers.txt is not compared
#
# MT_PTXAS is the path of the newest ptxas, MT_NVDISASM that of nvdisasm; without them both come
# from PATH. MT_PTXAS_OLDER is a folder with older ones, each in a folder VERSION
# (cudart/testdata/assemblers.sh fetches them). A driver compiles by the ptxas of its CUDA version.
# mt takes kernels for sm_90a from SM90aDriver in attention_hopper.go on, so older ones are not
# checked with these; MT_SM90A_FROM=12000 checks them anyway.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
newest=${MT_PTXAS:-ptxas}
export nvdisasm=${MT_NVDISASM:-nvdisasm}
command -v "$newest" >/dev/null || { echo "$newest is not installed (MT_PTXAS names it; PyPI: nvidia-cuda-nvcc)" >&2; exit 1; }
command -v "$nvdisasm" >/dev/null || { echo "$nvdisasm is not installed (MT_NVDISASM names it; PyPI: nvidia-cuda-nvdisasm)" >&2; exit 1; }
mode=newest
case ${1-} in
-rewrite) mode=rewrite; shift; [ $# -eq 0 ] || { echo "check.sh -rewrite takes no files: registers.txt has them all" >&2; exit 2; } ;;
-all) mode=all; shift ;;
-*) echo "check.sh has no option $1" >&2; exit 2 ;;
esac
whole=no
[ $# -gt 0 ] || { whole=yes; set -- *.ptx; }
architectures="80 86 89 90a 100 120"
from=${MT_SM90A_FROM:-$(sed -n 's/^const SM90aDriver = //p' attention_hopper.go)}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export out
export tools=$out/tools
(cd ../../.. && go build -o "$tools" ./tools)

# number prints the version of a ptxas: 12040 for 12.4.
number() { "$1" --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p' | awk '{ print $1 * 1000 + $2 * 10 }'; }

assemble() { # PTXAS NUMBER FILE ARCHITECTURE
	local log at
	at="ptxas $2, $3, sm_$4: "
	log=$out/$2.$(basename "$3").$4
	"$1" -v -arch="sm_$4" "$3" -o "$log.cubin" >"$log" 2>&1 || { sed "s|^|$at|" "$log" >&2; rm "$log"; return 1; }
	if [[ $3 = *_sm90a.ptx ]] && ! "$nvdisasm" -c "$log.cubin" 2>"$log.err" | "$tools" maxregisters >"$log.bad" 2>&1; then
		grep -hv 'nvdisasm warning' "$log.err" "$log.bad" | head -5 | sed "s|^|$at|" >&2
		return 1
	fi
	rm "$log.cubin"
	if grep -i "wgmma.*serialized" "$log" >"$log.bad"; then
		sed "s|^|$at|" "$log.bad" >&2
		return 1
	fi
}
export -f assemble
failed=0

# jobs prints what to assemble by a ptxas: its path, its number, a file and an architecture, each ended by a NUL.
jobs() { # PTXAS NUMBER FILE…
	local ptxas=$1 number=$2 file a
	shift 2
	for file; do for a in $architectures; do
		[[ $file != *_sm90a.ptx ]] || { [ "$a" = 90a ] && [ "$number" -ge "$from" ]; } || continue
		[ "$a" -lt 100 ] 2>/dev/null || [ "$a" = 90a ] || [ "$number" -ge 12080 ] || continue # older ones do not know them
		printf '%s\0%s\0%s\0%s\0' "$ptxas" "$number" "$file" "$a"
	done; done
}

# table prints a line for every kernel that a ptxas has assembled; local memory is an exclamation mark and its bytes a
# thread. It fails on local memory that spills.txt does not accept.
table() { # NUMBER FILE…
	local number=$1 file a
	shift
	for file; do
		for a in $architectures; do [ ! -f "$out/$number.$(basename "$file").$a" ] || cat "$out/$number.$(basename "$file").$a"; done
	done | awk -v architectures="$architectures" -v number="$number" '
FILENAME == "spills.txt" { if ($1 == number) accepted[$2, $3] = $4; next }
/Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; arch = substr(part[4], 4)
	if (!(kernel in known)) { known[kernel] = 1; kernels[++count] = kernel }
	spill = 0 }
/bytes stack frame/ { spill = $1 > $5 ? $1 : $5 }
/Used [0-9]+ registers/ { match($0, /Used [0-9]+/); cell = substr($0, RSTART + 5, RLENGTH - 5)
	if (match($0, /[0-9]+ bytes smem/)) { bytes = substr($0, RSTART, RLENGTH) + 0; if (bytes > shared[kernel]) shared[kernel] = bytes }
	if (spill) cell = cell "!" spill
	if (spill > accepted[kernel, arch]) { spills++; print "ptxas " number ": " kernel " keeps " spill " bytes a thread in local memory on sm_" arch > "/dev/stderr" }
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
	if (spills) exit 1
}' spills.txt -
}

all=("$newest")
if [ "$mode" != rewrite ] && [ -n "${MT_PTXAS_OLDER-}" ]; then all+=("$MT_PTXAS_OLDER"/*/ptxas); fi
some=() # files for the older ones
for file; do if [ "$mode" = all ] || [[ $file = *_sm90a.ptx ]]; then some+=("$file"); fi; done
for ptxas in "${all[@]}"; do
	if [ "$ptxas" = "$newest" ]; then jobs "$ptxas" "$(number "$ptxas")" "$@"; else jobs "$ptxas" "$(number "$ptxas")" "${some[@]}"; fi
done | xargs -0 -r -n 4 -P "$(nproc)" bash -c 'assemble "$@"' _ || failed=1
table "$(number "$newest")" "$@" >"$out/table" || failed=1
cat "$out/table"
for ptxas in "${all[@]:1}"; do
	table "$(number "$ptxas")" "${some[@]}" >"$out/older" || failed=1
	echo "$ptxas: $(($(wc -l <"$out/older") - 1)) kernels"
done
[ "$whole" = yes ] && [ $failed -eq 0 ] || exit $failed
[ "$mode" != rewrite ] || cp "$out/table" registers.txt
diff -u registers.txt "$out/table" >&2 || { echo "registers.txt has other numbers: check.sh -rewrite writes it anew, with the ptxas that cudart/testdata/toolkit.sh fetches" >&2; exit 1; }
