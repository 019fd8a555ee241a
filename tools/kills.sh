#!/usr/bin/env bash
# Kills runs (-9) at calls drawn at random, while they train, save and go on, and
# compares what they come to with a run that nobody disturbed, in memory and with states on
# disks; see TestRandomKills in cmd/mt. A thousand kills take some minutes.
#
#     tools/kills.sh [COUNT [SEED]]
#
# SEED draws the same kills again; without it others are drawn each time. Needs gcc and ptrace.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec go test ./cmd/mt -count=1 -timeout 3h -v -run '^TestRandomKills$' -args -kills "${1:-1000}" -fault-seed "${2:-0}"
