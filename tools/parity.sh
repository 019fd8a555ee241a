#!/usr/bin/env bash
# Prints the table of bench/reports/optimizers.md on the differences between mt's optimizers and the programs
# whose arithmetic they follow. The figures come from the log of the tests with recordings.
#
#     tools/parity.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
echo "| what | beside | largest difference | bound |"
echo "| --- | --- | --- | --- |"
go test -count=1 -v -run 'TestRecordedOptimizers|TestMuonIsTorchs|TestMuonWithCodes|TestNewtonSchulz' ./host/optim ./layers |
	sed -n 's/^.*parity//p'
