#!/usr/bin/env bash
# Makes the pictures in docs/pictures. It trains two small runs with throttled copies and updates,
# so that there is something to wait for. Then it opens mt watch's page in Chromium and takes
# screenshots at desktop and phone size:
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
for picture in "$pictures"/*.png; do
	[ "$(stat -c %s "$picture")" -lt 150000 ] || { echo "$0: $picture is larger than 150 KB" >&2; exit 1; }
done
