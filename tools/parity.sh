#!/usr/bin/env bash
# Prints the table of bench/reports/optimizers.md that compares optimizers with the programs whose arithmetic they have:
# what the tests log that hold them against recordings.
#
#     tools/parity.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
echo "| what | beside | largest difference | bound |"
echo "| --- | --- | --- | --- |"
go test -count=1 -v -run 'TestRecordedOptimizers|TestMuonIsTorchs|TestMuonWithCodes|TestNewtonSchulz' ./host/optim ./layers |
	sed -n 's/^.*parity//p'
