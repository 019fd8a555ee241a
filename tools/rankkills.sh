#!/usr/bin/env bash
# Kills (-9) one of two ranks at random moments, while they train, save and go on, and
# compares what they come to with a run that nobody disturbed; see TestRankKills in
# cmd/mt. A hundred kills take some minutes.
#
#     tools/rankkills.sh [COUNT [SEED]]
#
# SEED makes other draws. Needs mpirun.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec go test ./cmd/mt -count=1 -timeout 3h -v -run '^TestRankKills$' -args -rank-kills "${1:-100}" -fault-seed "${2:-1}"
