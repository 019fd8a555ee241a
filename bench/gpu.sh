#!/usr/bin/env bash
# Measures mt on a machine with an NVIDIA GPU, beside PyTorch's FSDP2, DeepSpeed's
# ZeRO-3, MegaTrain and plain PyTorch. The machine needs the mt binary, bash,
# coreutils and a python3 with what the peers need (mt bench train --help); no Go.
#
#     bench/gpu.sh --plan
#     bench/gpu.sh --mt ./mt --out DIR --call N [--blocks N] [--only PART,PART] …
#     bench/gpu.sh --mt ./mt --out DIR [--minutes 9] [--only PART,PART] [--blocks N] [--gpus N] [--sanitize]
#     bench/gpu.sh --mt ./mt --out DIR --scale small [--part-seconds 5] [--peers-on cuda]    # a rehearsal, see bench/rehearse.sh
#
# Parts run in the order of a first contact, in calls of at most ten minutes; the
# first two end with a ratio beside ZeRO-3 or FSDP2. --plan prints calls and parts with
# the seconds that each should take. --call N runs one call; without it all run, within
# --minutes. Each part may take three times what it should. Before each the time left
# is looked at; what was left out is named in the report. A part that fails does not
# stop the others, nor does a call that is cut off lose what was measured: DIR keeps the
# files of earlier calls, and report.md has them too.
# A part with two sides runs mt and then the peer, from the same weights on the same
# tokens. A side that has finished stays in the report where the other one fails, or
# where their losses differ.
#
#   1 doctor        the machine, the GPU and its libraries
#     selftest      mt doctor --selftest --device cuda: correctness, copies, rates
#     blocks-2      one step of 2 of Qwen2.5-7B's blocks, 128 rows of 1024 tokens
#     profile       4 blocks: where the time of a step goes, operation by operation
#     seq1024       7B-shaped blocks, 128 rows of 1024 tokens a step
#     seq8192       16 rows of 8192
#     attention, copy, matmul
#                   rates; copy also says how long memory takes to be pinned, by
#                   1, 2, 4 and 8 threads
#   2 zero3-1024    mt and ZeRO-3 with CPU offload, 6 blocks
#     fsdp2-1024    mt and FSDP2 with CPU offload, the same blocks, batch and steps
#   3 fsdp2-8192    mt and FSDP2, 16 rows of 8192
#     slots-1, slots-2, slots-3
#                   weight slots: what double buffering gives
#   4 sanitize-attention
#                   attention of the self test under compute-sanitizer's memcheck,
#                   racecheck and synccheck, where that is installed
#     products-timed
#                   6 blocks, each product by the fastest algorithm (matmul: timed), beside slots-2
#     kernels-fused, kernels-sm90a
#                   seq8192 by the kernels of all GPUs and by those for sm_90a
#     budget-14b    14B-shaped blocks, 16k tokens a step, within 24 GiB of the card
#   5 zero3-8192    mt and ZeRO-3, 16 rows of 8192
#     fsdp2-again, zero3-again
#                   once more, so that the ratio has a spread
#   6 megatrain-1024
#                   mt and MegaTrain's public code
#     torch-1024    mt and plain PyTorch, 2 blocks, which a large GPU holds whole
#   7 gpus-2, -4 …  with --gpus N: seq1024 on 2, 4 … N GPUs, in micro-batches of
#                   an eighth of the step. All else runs on one GPU, peers too
#     budget-32k    7B-shaped blocks, one sequence of 32k tokens, within 10 GiB
#     batches       smaller batches: 16, 32, 64 rows of 1024
#     depth-slots4, depth-grad1
#                   four weight slots, one gradient buffer
#     full-7b       all 28 blocks, where 110 GiB of host memory are free
#   sanitize-memcheck, sanitize-racecheck, sanitize-synccheck
#                   with --sanitize, before all else: the self test at small sizes under
#                   compute-sanitizer, which comes with the CUDA toolkit; each for
#                   --sanitize-seconds (300) at most. What it finds is in the report
#
# DIR receives PART.json and PART.log, machine.json, parts.txt, and report.md, which is
# written anew after every part. Where a kernel faulted, PROCESS.cudacore is the GPU's core dump and
# PROCESS.cudacore.txt what cuda-gdb says of it: kernel and program counter. --part-seconds N takes N in place of what
# each part should take. MT_HOST_ROOT is put in front of /proc and /sys/fs/cgroup where limits of the container are read.
set -uo pipefail
shopt -s inherit_errexit

mt=./mt out='' minutes='' call='' plan='' only='' blocks='' gpus=1 python=${MT_PYTHON:-python3}
rows=128 rows_long=16 steps=4 budget=10GiB budget_14b=24GiB shape=qwen2.5-7b shape_budget=qwen2.5-14b scale=1
sanitize='' sanitize_seconds=300 part_seconds='' peers_on='' host_root=${MT_HOST_ROOT:-}

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

fail() { echo "gpu.sh: $*" >&2; exit 2; }

while [ $# -gt 0 ]; do
	case $1 in
	--mt | --out | --minutes | --call | --only | --blocks | --gpus | --python | --scale)
		[ $# -ge 2 ] || fail "$1 needs a value"
		printf -v "${1#--}" %s "$2"
		shift 2
		;;
	--sanitize) sanitize=yes; shift ;;
	--plan) plan=yes; shift ;;
	--sanitize-seconds | --part-seconds | --peers-on)
		[ $# -ge 2 ] || fail "$1 needs a value"
		name=${1#--}
		printf -v "${name//-/_}" %s "$2"
		shift 2
		;;
	--help | -h) usage; exit 0 ;;
	*) fail "unknown argument $1 (see --help)" ;;
	esac
done
readonly calls=7
case $call in '' | [1-$calls]) ;; *) fail "--call $call: there are calls 1 to $calls, see --plan" ;; esac
[ -n "$minutes" ] || minutes=9
case $minutes in '' | *[!0-9]*) fail "--minutes $minutes is no whole number" ;; esac
case $gpus in '' | *[!0-9]* | 0) fail "--gpus $gpus is no number of GPUs" ;; esac
case $peers_on in '' | cuda | cpu) ;; *) fail "--peers-on $peers_on: want cuda or cpu" ;; esac
case $part_seconds in *[!0-9]* | 0) fail "--part-seconds $part_seconds is no number of seconds" ;; esac
case $sanitize_seconds in '' | *[!0-9]*) fail "--sanitize-seconds $sanitize_seconds is no whole number" ;; esac
if [ -z "$plan" ]; then
	[ -n "$out" ] || fail "--out DIR says where results go"
	mt=$(command -v -- "$mt") || fail "--mt: there is no such program"
	mkdir -p "$out" || exit 2
	out=$(cd "$out" && pwd)
	touch "$out/parts.txt" || exit 2
fi
# --scale small runs the whole script without a computing GPU, for example with the emulator. The
# figures are then meaningless.
if [ "$scale" = small ]; then
	rows=4 rows_long=2 shape=tiny shape_budget=tiny blocks=${blocks:-2} budget=1GiB budget_14b=1GiB steps=2
fi
[ -z "$plan" ] || blocks=${blocks:-12}
[ -n "$peers_on" ] || { [ "$scale" = small ] && peers_on=cpu || peers_on=cuda; }
readonly sanitize sanitize_seconds part_seconds peers_on host_root mt out minutes call plan only gpus python rows rows_long steps budget budget_14b shape shape_budget scale

# group_file FILE prints that file of each control group around this process, innermost first. FILE
# is the name in version 2, and CONTROLLER/FILE the name in version 1.
group_file() {
	local controller='' file=$1 path base
	case $1 in */*) controller=${1%%/*} file=${1#*/} ;; esac
	path=$(awk -F: -v c="$controller" '(c == "" && $1 == "0") || (c != "" && ("," $2 ",") ~ ("," c ",")) {print $3; exit}' "$host_root/proc/self/cgroup" 2>/dev/null)
	base=$host_root/sys/fs/cgroup${controller:+/$controller}
	while :; do
		[ ! -r "$base$path/$file" ] || echo "$base$path/$file"
		case $path in '' | /) return ;; esac
		path=${path%/*}
	done
}

# memory_limits prints limit and remaining bytes of each control group that limits memory.
memory_limits() {
	local names file limit used
	for names in memory.max:memory.current memory/memory.limit_in_bytes:memory/memory.usage_in_bytes; do
		for file in $(group_file "${names%:*}"); do
			limit=$(cat "$file") && used=$(cat "${file%/*}/${names##*[:/]}" 2>/dev/null) || continue
			case $limit in '' | *[!0-9]*) continue ;; esac
			[ ${#limit} -ge 19 ] || echo "$limit $((limit - used))" # version 1 writes almost 2^63 for no limit
		done
	done
}

# memory_limit prints the smallest memory limit of the container in bytes; 0: none.
memory_limit() { memory_limits | sort -n | awk 'NR == 1 {print $1; found = 1} END {if (!found) print 0}'; }

# cpu_limit prints the container's CPU limit in cores, such as 1.50; 0: none.
cpu_limit() {
	local file quota period
	for file in $(group_file cpu.max) $(group_file cpu/cpu.cfs_quota_us); do
		case $file in
		*/cpu.max) read -r quota period <"$file" ;;
		*) quota=$(cat "$file") period=$(cat "${file%/*}/cpu.cfs_period_us" 2>/dev/null) ;;
		esac
		case $quota$period in *[!0-9]*) ;; *) [ -z "$period" ] || awk "BEGIN {printf \"%.2f\\n\", $quota / $period}" ;; esac
	done | sort -n | awk 'NR == 1 {print; found = 1} END {if (!found) print 0}'
}

# free_bytes prints the machine's available memory, or the container's remaining memory if that is
# less.
free_bytes() {
	local free left
	free=$(awk '/^MemAvailable:/ {print $2}' "$host_root/proc/meminfo") # in KiB: mawk prints no integer above 2^31
	free=$((free * 1024))
	while read -r _ left; do
		[ "$left" -ge "$free" ] || free=$left
	done < <(memory_limits)
	echo $((free > 0 ? free : 0))
}

# A fault in a kernel leaves a small core dump in DIR. cuda-gdb finds kernel and program counter in
# it.
export CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_ENABLE_LIGHTWEIGHT_COREDUMP=1 CUDA_COREDUMP_FILE="$out/%p.cudacore"

# Each side takes at most 20 bytes a parameter on the host, and the sides alternate. A 7B-shaped
# block has 233 million parameters, embedding and head together 1090 million. A fifth of the memory
# stays free.
if [ -z "$blocks" ]; then
	blocks=$((($(free_bytes) / 10 * 8 / 20 - 1090000000) / 233000000))
	[ "$blocks" -le 12 ] || blocks=12
	[ "$blocks" -ge 1 ] || fail "$(($(free_bytes) >> 30)) GiB of host memory are too few for one block and the vocabulary"
fi
readonly blocks

began=$SECONDS
left() { echo $((minutes * 60 - (SECONDS - began))); }

failed=no

# outcome NAME WHAT records the outcome of a part and rewrites the report, so the report exists
# whenever the script is cut off. parts.txt also has the outcomes of earlier calls.
outcome() {
	echo "== $1: $2"
	case $2 in failed*) failed=yes ;; esac
	echo "$1=$2" >>"$out/parts.txt"
	report
}

# report writes report.md from the files in DIR. The last line of a part in parts.txt counts.
report() {
	"$mt" bench report "$out" >"$out/report.md.part" && mv "$out/report.md.part" "$out/report.md"
}

debugger=$(command -v cuda-gdb || command -v /usr/local/cuda/bin/cuda-gdb)

# dumps prints the new core dumps in DIR with exception, program counter and kernel. The full output
# of cuda-gdb for FILE goes to FILE.txt.
dumps() {
	local dump said=''
	for dump in "$out"/*.cudacore; do
		[ -e "$dump" ] && [ ! -e "$dump.txt" ] || continue
		if [ -n "$debugger" ]; then
			timeout --kill-after=5 60 "$debugger" -nx -batch -ex "target cudacore $dump" -ex 'info cuda kernels' -ex 'print/x $pc' -ex 'x/2i $pc' >"$dump.txt" 2>&1 </dev/null
		else
			echo "cuda-gdb is not installed, neither in PATH nor in /usr/local/cuda/bin; it opens the file: target cudacore ${dump##*/}" >"$dump.txt"
		fi
		said="$said; core dump ${dump##*/}: $(grep -E 'Exception|PC 0x|^#0 |not installed' "$dump.txt" | tr -s ' \n' ' ')"
	done
	echo "$said"
}

# reason NAME prints the last line of a part's log before it was ended, and the line about work that
# does not end.
reason() {
	local last hung
	last=$(grep -v -e '^$' -e ': finishing what is begun; once more to stop at once$' -e ': stopping without it; ' "$out/$1.log" | tail -n 1)
	hung=$(grep 'has not ended after' "$out/$1.log" | head -n 1)
	[ "$last" = "$hung" ] || last="$last${hung:+; $hung}"
	echo "${last:-it said nothing}"
}

# of CALL WHAT begins a call; WHAT is its purpose.
current='' planned=0 total=0
of() {
	summed
	current=$1
	[ -z "$plan" ] || printf '\ncall %s: %s\n' "$1" "$2"
}

# summed prints the seconds of the finished call, with --plan.
summed() {
	[ -z "$plan" ] || [ -z "$current" ] || printf '  %-28s %4d s, %d s in all\n' together "$planned" "$total"
	planned=0
}

# chosen NAME SECONDS reports whether --only and --call select a part. With --plan it prints the
# part and selects none.
chosen() {
	[ -z "$only" ] || [[ ",$only," == *",$1,"* ]] || return 1
	[ -z "$call" ] || [ -z "$current" ] || [ "$call" = "$current" ] || return 1
	[ -n "$plan" ] || return 0
	planned=$((planned + $2)) total=$((total + $2))
	printf '  %-28s %4d s\n' "$1" "$2"
	return 1
}

# part NAME SECONDS COMMAND… runs a part that needs about SECONDS. It ends the part after three
# times as long, so a hang costs one part. The part's JSON goes to NAME.json.
part() {
	local name=$1 needs=${part_seconds:-$2} code=0
	shift 2
	chosen "$name" "$needs" || return 0
	if [ "$(left)" -lt "$needs" ]; then
		echo "== $name: left out, $(left) s are left and it needs about $needs"
		outcome "$name" "left out: $(left) s were left, it needs about $needs"
		return
	fi
	echo "== $name"
	local start=$SECONDS limit=$((3 * needs))
	[ "$(left)" -ge "$limit" ] || limit=$(left)
	timeout --kill-after=15 "$limit" "$@" >"$out/$name.json.part" 2>"$out/$name.log" || code=$?
	if [ "$code" -eq 0 ]; then
		mv "$out/$name.json.part" "$out/$name.json"
		outcome "$name" "done in $((SECONDS - start)) s"
	else
		# A failed self test's output is kept. A part that was cut off may have written its file
		# itself.
		if [ -s "$out/$name.json.part" ]; then mv "$out/$name.json.part" "$out/$name.json"; else rm -f "$out/$name.json.part"; fi
		case $code in
		124 | 137) outcome "$name" "failed: it was stopped after $((SECONDS - start)) s, its limit is $limit s: $(reason "$name")$(dumps)" ;;
		*) outcome "$name" "failed with exit code $code: $(reason "$name")$(dumps)" ;;
		esac
	fi
}

# A run has one warm-up step, one step that does not count, the counted steps, and one step after
# them. In the middle of a run the pipeline works as in training.
device=cuda
train() { timed "$steps" "$@"; }

timed() { # STEPS SHAPE BLOCKS ROWS SEQ FLAGS…
	local count=$1 of=$2 n=$3 r=$4 seq=$5
	shift 5
	echo "$mt bench train --device $device --dtype bf16 --shape $of --blocks $n --rows $r --seq-len $seq --warmup 1 --rounds 1 --steps $count --json $*"
}

# beside NAME SECONDS PEER MODULES BLOCKS ROWS SEQ is a part with two sides. PyTorch computes
# nothing on an emulated GPU, so both sides then run on the CPU, unless --peers-on says otherwise.
beside() {
	local name=$1 needs=$2 peer=$3 modules=$4
	chosen "$name" "$needs" || return 0
	if ! "$python" -c "import sys, importlib.util as u; sys.exit(not all(u.find_spec(m) for m in sys.argv[1].split(',')))" "$modules" 2>/dev/null; then
		outcome "$name" "left out: $python has not all of $modules (mt bench train --peer $peer says how to install it)"
		return
	fi
	local device=$peers_on
	# shellcheck disable=SC2046
	MT_PYTHON=$python part "$name" "$needs" $(train $shape "$5" "$6" "$7" --peer "$peer")
}

short=1024 long=8192 longest=32768 selftest_flags=''
if [ "$scale" = small ]; then # an emulated GPU is slow for all operations, and for products of Qwen2.5-7B
	short=64 long=128 longest=256 selftest_flags='--small --only RMSNorm,MatMul --limit 5s'
fi

[ -n "$plan" ] || {
	printf '{"date": "%s", "blocks": %d, "host_memory_available": %d, "cores": %d, "cpu_limit": %s, "memory_limit": %d, "scale": "%s",\n' \
		"$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$blocks" "$(free_bytes)" "$(nproc)" "$(cpu_limit)" "$(memory_limit)" "$scale"
	printf '"processor": "%s", "mt": "%s", "gpu": "%s"}\n' \
		"$(awk -F': *' '/^model name/ {print $2; exit}' /proc/cpuinfo)" "$("$mt" version | head -n 1)" \
		"$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1)"
} >"$out/machine.json"

# sanitized NAME TOOL SECONDS FLAGS… runs the self test under a tool of compute-sanitizer. Findings
# go to NAME.txt. Reaching the time limit is not a failure.
sanitized() {
	local name=$1 tool=$2 limit=$3 code=0 start=$SECONDS
	shift 3
	chosen "$name" "$limit" || return 0
	if [ -z "$sanitizer" ]; then
		outcome "$name" "left out: compute-sanitizer is not installed, neither in PATH nor in /usr/local/cuda/bin; it comes with the CUDA toolkit"
		return
	fi
	[ "$(left)" -ge "$limit" ] || limit=$(left)
	if [ "$limit" -le 0 ]; then
		outcome "$name" "left out: no time is left"
		return
	fi
	echo "== $name"
	timeout --kill-after=15 "$limit" "$sanitizer" --tool "$tool" --error-exitcode 9 --log-file "$out/$name.txt" \
		"$mt" doctor --selftest --in-process --small --device cuda --json "$@" >"$out/$name.json" 2>"$out/$name.log" || code=$?
	case $code in
	0) outcome "$name" "done in $((SECONDS - start)) s, nothing found" ;;
	9) outcome "$name" "failed: compute-sanitizer has findings, see $name.txt" ;;
	124 | 137) outcome "$name" "stopped after its $limit s" ;;
	*) outcome "$name" "failed with exit code $code: $(reason "$name")$(dumps)" ;;
	esac
}
sanitizer=$(command -v compute-sanitizer || command -v /usr/local/cuda/bin/compute-sanitizer)
if [ -n "$sanitize" ]; then
	for tool in memcheck racecheck synccheck; do sanitized sanitize-$tool $tool "$sanitize_seconds"; done
fi

# few N prints N, or the number of blocks that fit if it is smaller.
few() { echo $((blocks < $1 ? blocks : $1)); }

# Word splitting is intended: commands consist of words without spaces.
# shellcheck disable=SC2046
{
	of 1 "the machine, the self test, first steps, rates"
	part doctor 20 "$mt" doctor --json
	part selftest 60 "$mt" doctor --selftest --device cuda $selftest_flags --json --report "$out/selftest.json"
	part blocks-2 25 $(timed 1 $shape "$(few 2)" "$rows" $short)
	part profile 40 $(train $shape "$(few 4)" "$rows" $short --profile)
	part seq1024 70 $(train $shape "$blocks" "$rows" $short)
	part seq8192 70 $(train $shape "$blocks" "$rows_long" $long)
	part attention 60 "$mt" bench attention --device $device --dtype bf16 --lengths $short,$long --json
	part copy 60 "$mt" bench copy --device $device --json
	part matmul 60 "$mt" bench matmul --device $device --dtype bf16 --model $shape --json

	of 2 "the first ratios"
	beside zero3-1024 230 zero3 torch,deepspeed "$(few 6)" "$rows" $short
	beside fsdp2-1024 200 fsdp2 torch "$(few 6)" "$rows" $short

	of 3 "longer rows, and what double buffering gives"
	beside fsdp2-8192 200 fsdp2 torch "$blocks" "$rows_long" $long
	for n in 1 2 3; do
		part slots-$n 50 $(train $shape "$(few 6)" "$rows" $short --weight-slots $n)
	done

	of 4 "sanitizers, kernels, a smaller card"
	for tool in memcheck racecheck synccheck; do sanitized sanitize-attention-$tool $tool 90 --only Attention,AttentionBackward; done
	part products-timed 60 $(train $shape "$(few 6)" "$rows" $short --timed-matmul)
	part kernels-fused 70 $(train $shape "$(few 6)" "$rows_long" $long --attention-kernels fused)
	part kernels-sm90a 70 $(train $shape "$(few 6)" "$rows_long" $long --attention-kernels sm90a)
	part budget-14b 60 $(train $shape_budget "$(few 4)" "$([ "$scale" = small ] && echo 2 || echo 16)" $short --device-memory $budget_14b)

	of 5 "the spread of the ratios"
	beside zero3-8192 180 zero3 torch,deepspeed "$blocks" "$rows_long" $long
	beside fsdp2-again 180 fsdp2 torch "$(few 6)" "$rows" $short
	beside zero3-again 180 zero3 torch,deepspeed "$(few 6)" "$rows" $short

	of 6 "other peers"
	if [ "$scale" != small ]; then
		beside megatrain-1024 200 megatrain torch,transformers,deepspeed,infinity "$blocks" "$rows" $short
	fi
	beside torch-1024 120 torch "$([ "$scale" = small ] && echo torch,transformers || echo torch)" 2 "$rows" $short

	of 7 "several GPUs, small cards, batches, depths, the whole model"
	for ((n = 2; n <= gpus; n = n * 2 > gpus && n < gpus ? gpus : n * 2)); do
		part "gpus-$n" 70 $(train $shape "$blocks" "$rows" $short --devices "$n" --micro-batch-tokens $((rows * short / 8)))
	done
	part budget-32k 50 $(train $shape "$(few 4)" 1 $longest --device-memory $budget)
	for n in 16 32 64; do
		part "batch-$n" 40 $(train $shape "$blocks" "$([ "$scale" = small ] && echo 2 || echo "$n")" $short)
	done
	part depth-slots4 40 $(train $shape "$blocks" "$rows" $short --weight-slots 4)
	part depth-grad1 40 $(train $shape "$blocks" "$rows" $short --grad-buffers 1)
	if [ -n "$plan" ] || [ "$(free_bytes)" -ge $((110 << 30)) ] || [ "$scale" = small ]; then
		part full-7b 150 $(train $shape "$([ "$scale" = small ] && echo 3 || echo 28)" "$rows" $short)
	elif chosen full-7b 150; then
		outcome full-7b "left out: $(($(free_bytes) >> 30)) GiB of host memory are free, it needs 110"
	fi
}
if [ -n "$plan" ]; then
	summed
	exit 0
fi

report || fail "the report could not be written; the JSON files are in $out"
echo "== $out/report.md, after $((SECONDS - began)) s"
[ "$failed" = no ]
