// Command mutate asks whether the tests would notice. It breaks the program in
// one small, likely way at a time, a wrong sign, a dropped term, an ignored
// error, and runs the test that is to fail for it:
//
//	go run ./internal/mutate                   # all of them, most of an hour on two cores
//	go run ./internal/mutate -only host/adamw  # those whose file or text matches
//
// The list is in the list_*.go files. Source files are not touched: the compiler
// is given the broken text in place of a file (go help build, -overlay). A
// mutation that no test notices is printed and makes the command fail: the test
// is missing, and is to be written in the package that broke. One that changes
// nothing that anyone could see is in the list with the reason why.
//
// It may import the standard library only.
//
// Invariant: its own test holds that every text to break is in its file exactly
// once and that every test that is named exists, so that the list stays true
// while the program changes.
package main
