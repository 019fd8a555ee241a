// Command tools has the developer programs of mt:
//
//	go test -json ./... | go run ./tools testsum                 # a summary of test results for people
//	go run ./tools mutate host/optim                             # which wrong lines do the tests notice
//	nvdisasm -c KERNEL.cubin | go run ./tools maxregisters       # does a kernel use registers it gave away
//	go run ./tools curves FILE.svg NAME=DIR,DIR,… …              # training losses of runs in one picture
//	go run ./tools dist                                          # what people install mt from
//
// It may import internal/chart, other helpers in internal and the standard library only.
//
// Invariant: a program fails if it cannot read its input or the input is empty.
package main
