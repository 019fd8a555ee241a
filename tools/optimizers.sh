#!/usr/bin/env bash
# Prints the table of docs/optimizers.md: for each optimizer the bytes a parameter of a 7B model, and the
# host memory that models of several sizes take, as `mt plan` has it, without clipping:
#
#     tools/optimizers.sh
#
# Nothing is measured, and no GPU is needed.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=$(mktemp -d)
readonly dir
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/mt" ./cmd/mt

plan() { # OPTIMIZER MODEL KEY
	local keys=()
	[ "$1" != "sgd, momentum 0.9" ] || keys=(--momentum 0.9)
	"$dir/mt" plan --model "$2" --device-memory 130GiB --optim "${1%%,*}" "${keys[@]}" --max-grad-norm 0 --host-memory 4000GiB --json 2>"$dir/notes" |
		sed -n "s/^ *\"$3\": \([0-9.]*\),*$/\1/p" | tail -1
}

readonly models=(qwen2.5-7b qwen2.5-14b qwen2.5-32b qwen2.5-72b gpt-oss-120b)
echo "| optimizer | resident | host | link | 7B | 14B | 32B | 72B | 120B |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for optim in adamw adamw_8bit adamw_4bit muon muon_8bit lion lion_8bit sgd "sgd, momentum 0.9"; do
	each=$(plan "$optim" qwen2.5-7b host_bytes_per_parameter)
	link=8
	[[ $optim != muon* ]] || link=14
	awk -v o="$optim" -v b="$each" -v l="$link" 'BEGIN { printf "| `%s` | %.2f | %.0f | %s |", o, b, 2 * b + 4, l }'
	for model in "${models[@]}"; do
		plan "$optim" "$model" host_bytes | awk '{ printf " %.0f GiB |", $1 / 2^30 }'
	done
	echo
done
