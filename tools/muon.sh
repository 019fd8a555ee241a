#!/usr/bin/env bash
# Trains the quickstart's model, and one twice as wide, from scratch for 120 steps with AdamW and
# with Muon. It trains at several learning rates with one seed, then at the best rate with three
# other seeds. It draws docs/pictures/muon.svg and muon-wide.svg, and prints the held-out losses for
# bench/reports/muon.md:
#
#     tools/muon.sh [DIR]
#     ONLY=wide tools/muon.sh [DIR]    # or ONLY=quickstart
#
# The runs stay in DIR, by default a temporary folder; existing runs are reused. On two cores the
# first model takes half an hour, the second an hour and a half.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=$(realpath -m "${1:-$(mktemp -d)}")
readonly dir
mkdir -p "$dir"
go build -o "$dir/mt" ./cmd/mt
go build -o "$dir/tools" ./tools

train() { # CONFIG NAME SEED OPTIMIZER RATE [RATE OF OTHERS]
	local config=$1 name=$2 seed=$3 keys=(--learning-rate "$5")
	[ "$4" = adamw ] || keys=(--optim muon --learning-rate "$6" --muon-lr "$5" --adam-lr "$6")
	[ -f "$dir/$name/model.safetensors" ] || "$dir/mt" train "$config" --max-steps 120 --warmup-steps 10 --seed "$seed" --compare-bigram=false \
		--save-strategy no --sample-prompt "" --output-dir "$dir/$name" "${keys[@]}" >"$dir/$name.log" 2>&1
}

# tune trains at each of the rates and sets best to the rates with the lowest held-out loss.
tune() { # CONFIG PREFIX OPTIMIZER RATES…
	local config=$1 prefix=$2-$3 optim=$3 rates runs=()
	shift 3
	for rates in "$@"; do
		# shellcheck disable=SC2086
		train "$config" "$prefix-${rates// /-}" 1 "$optim" $rates
		runs+=("$rates=$dir/$prefix-${rates// /-}")
	done
	"$dir/tools" curves "$dir/$prefix.svg" "${runs[@]}" | tee "$dir/$prefix.tuned"
	best=$(sort -t $'\t' -k 3 -g "$dir/$prefix.tuned" | head -1 | cut -f 1)
}

compare() { # CONFIG PREFIX PICTURE
	local config=$1 prefix=$2 picture=$3 adamw muon seed adamws=() muons=()
	tune "$config" "$prefix" adamw 7.5e-4 1.5e-3 3e-3 6e-3
	adamw=$best
	tune "$config" "$prefix" muon ".01 3e-3" ".02 3e-3" ".05 3e-3" ".1 3e-3" ".02 6e-3"
	muon=$best
	for seed in 2 3 4; do
		train "$config" "$prefix-$seed-adamw" "$seed" adamw "$adamw"
		# shellcheck disable=SC2086
		train "$config" "$prefix-$seed-muon" "$seed" muon $muon
		adamws+=("$dir/$prefix-$seed-adamw") muons+=("$dir/$prefix-$seed-muon")
	done
	"$dir/tools" curves "$picture" "AdamW=$(IFS=,; echo "${adamws[*]}")" "Muon=$(IFS=,; echo "${muons[*]}")"
}

sed 's/hidden_size: 256/hidden_size: 512/; s/intermediate_size: 704/intermediate_size: 1408/
	s/num_attention_heads: 8/num_attention_heads: 16/; s/num_key_value_heads: 4/num_key_value_heads: 8/' \
	examples/quickstart.yaml >"$dir/wide.yaml"
case ${ONLY:-} in '' | quickstart) compare examples/quickstart.yaml quickstart docs/pictures/muon.svg ;; esac
case ${ONLY:-} in '' | wide) compare "$dir/wide.yaml" wide docs/pictures/muon-wide.svg ;; esac
