#!/usr/bin/env bash
# Makes the pictures in docs/pictures. It trains two small runs with throttled copies and updates,
# so that there is something to wait for. Then it opens mt watch's page in Chromium and takes
# screenshots at desktop and phone size. It also draws the timeline of a step from a trace, and
# the memory of a 7B model from its plan. pipeline.svg is drawn by hand.
#
#     tools/pictures.sh [DIR]
#
# The runs stay in DIR, by default a temporary folder; existing runs are reused. It takes some
# minutes on two cores, and needs Go and Chromium.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=$(realpath -m "${1:-$(mktemp -d)}")
readonly dir pictures=$PWD/docs/pictures
mkdir -p "$dir/shots"
go build -o "$dir/mt" ./cmd/mt
runs=()
for rate in 1.5e-3 5e-4; do
	MT_THROTTLE="link=60MB/s updates=200MB/s" "$dir/mt" train "$pictures/run.yaml" \
		--learning-rate "$rate" --output-dir "$dir/lr-$rate" --cache-dir "$dir/cache" --dashboard
	runs+=("$dir/lr-$rate")
done
go test ./internal/watch -count 1 -run TestPage/pictures -shots "$dir/shots" -of "$(IFS=,; echo "${runs[*]}")"
cp "$dir/shots/runs-1280-light-small.png" "$pictures/watch-desktop.png"
cp "$dir/shots/runs-390-dark-small.png" "$pictures/watch-phone.png"
cp "$dir/lr-1.5e-3/loss.svg" "$pictures/loss.svg"
MT_THROTTLE="link=300MB/s updates=600MB/s" "$dir/mt" train examples/quickstart.yaml --max-steps 8 --binding copy \
	--trace "$dir/trace.json" --output-dir "$dir/traced" --cache-dir "$dir/cache"
tools/timeline.py "$dir/trace.json" 4 >"$pictures/timeline.svg"
"$dir/mt" plan --model qwen2.5-7b --gpu rtx4090 --host-memory 128GiB --json |
	tools/memory_picture.py "Qwen2.5 7B, all parameters trained with AdamW, on a 24 GB card" >"$pictures/memory-7b.svg"
for picture in "$pictures"/*.png; do
	[ "$(stat -c %s "$picture")" -lt 150000 ] || { echo "$0: $picture is larger than 150 KB" >&2; exit 1; }
done
