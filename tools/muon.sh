#!/usr/bin/env bash
# Trains the quickstart's model for 120 steps with AdamW and with Muon, from scratch: at several rates with
# one seed, then at the best of them with three others. Draws docs/pictures/muon.svg, and prints the
# held-out losses that docs/muon.md has:
#
#     tools/muon.sh [DIR]
#
# The runs are left in DIR, by default a temporary folder; those that are there are taken as they are. It
# takes half an hour on two cores.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=$(realpath -m "${1:-$(mktemp -d)}")
readonly dir
mkdir -p "$dir"
go build -o "$dir/mt" ./cmd/mt

train() { # NAME SEED KEYS…
	local name=$1 seed=$2
	shift 2
	[ -d "$dir/$name" ] || "$dir/mt" train examples/quickstart.yaml --max-steps 120 --warmup-steps 10 --seed "$seed" --compare-bigram=false \
		--save-strategy no --sample-prompt "" --output-dir "$dir/$name" "$@" >"$dir/$name.log" 2>&1
}
muon() { echo --optim muon --learning-rate 3e-3 --muon-lr "$1" --adam-lr "$2"; }

tuned=()
for rate in 7.5e-4 1.5e-3 3e-3 6e-3; do
	train "t-adamw-$rate" 1 --learning-rate "$rate"
	tuned+=("AdamW,$rate=$dir/t-adamw-$rate")
done
for rates in ".01 3e-3" ".02 3e-3" ".05 3e-3" ".1 3e-3" ".02 6e-3"; do
	read -r matrices others <<<"$rates"
	# shellcheck disable=SC2046
	train "t-muon-$matrices-$others" 1 $(muon "$matrices" "$others")
	tuned+=("Muon,$matrices,$others=$dir/t-muon-$matrices-$others")
done
go run ./tools/curves "$dir/tuned.svg" "${tuned[@]}"
adamw=() muon=()
for seed in 2 3 4; do
	train "adamw-$seed" "$seed" --learning-rate 1.5e-3
	# shellcheck disable=SC2046
	train "muon-$seed" "$seed" $(muon .05 3e-3)
	adamw+=("$dir/adamw-$seed") muon+=("$dir/muon-$seed")
done
go run ./tools/curves docs/pictures/muon.svg "AdamW=$(IFS=,; echo "${adamw[*]}")" "Muon=$(IFS=,; echo "${muon[*]}")"
