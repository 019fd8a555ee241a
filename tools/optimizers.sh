#!/usr/bin/env bash
# Prints the table of docs/optimizers.md from `mt plan`: for each optimizer and some other choices,
# the bytes a parameter of a 7B model, and the host memory of models of several sizes:
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

plan() { # MODEL KEY FLAGS...
	"$dir/mt" plan --model "$1" --device-memory 130GiB --host-memory 4000GiB --json "${@:3}" 2>"$dir/notes" |
		sed -n "s/^ *\"$2\": \([0-9.]*\),*$/\1/p" | tail -1
}

readonly models=(qwen2.5-7b qwen2.5-14b qwen2.5-32b llama-70b gpt-oss-120b)

row() { # NAME GRADIENT-BYTES-READ LINK FLAGS...
	local name=$1 read=$2 link=$3 model
	shift 3
	plan qwen2.5-7b host_bytes_per_parameter "$@" |
		awk -v o="$name" -v r="$read" -v l="$link" '{ printf "| %s | %.2f | %.0f | %s |", o, $1, 2 * $1 + r, l }'
	for model in "${models[@]}"; do
		plan "$model" host_bytes "$@" | awk '{ printf " %.0f GiB |", $1 / 2^30 }'
	done
	echo
}

echo "| optimizer | resident | host | link | 7B | 14B | 32B | 70B | 120B |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for optim in adamw adamw_8bit adamw_4bit muon muon_8bit lion lion_8bit sgd; do
	link=8
	[[ $optim != muon* ]] || link=14
	row "\`$optim\`" 4 $link --optim $optim --max-grad-norm 0
done
row "\`sgd\`, \`momentum: 0.9\`" 4 8 --optim sgd --momentum 0.9 --max-grad-norm 0
row "\`adamw_8bit\`, \`clip: layerwise\`" 8 8 --optim adamw_8bit --clip layerwise
row "\`adamw_8bit\`, \`grad_dtype: bf16\`" 2 6 --optim adamw_8bit --grad-dtype bf16 --max-grad-norm 0
row "\`adamw_8bit\`, \`master_dtype: bf16\`" 4 8 --optim adamw_8bit --master-dtype bf16 --max-grad-norm 0
row "\`adamw_8bit\`, both" 2 6 --optim adamw_8bit --master-dtype bf16 --grad-dtype bf16 --max-grad-norm 0
row "\`adamw_8bit\`, gradients wait for the norm" 8 8 --optim adamw_8bit --max-grad-norm 1
row "\`adamw_8bit\`, they wait in bf16" 4 6 --optim adamw_8bit --grad-dtype bf16 --max-grad-norm 1
