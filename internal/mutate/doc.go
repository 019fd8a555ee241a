// Command mutate asks whether the tests notice a wrong line. It draws small
// changes of the named packages, makes one at a time, and runs tests until one
// fails:
//
//	go run ./internal/mutate host/optim            # 30 mutants of a package
//	go run ./internal/mutate -n 5 -seed 2 ./...    # 5 others of every package
//	go run ./internal/mutate -list host/optim      # which mutants are drawn
//	go run ./internal/mutate -hand host/optim      # the mutants of hand.txt
//
// Operators over the syntax tree make the drawn mutants: they negate a condition,
// drop a statement, swap an operator or operands, ignore an error, shift a
// constant, return early. A mutant that does not compile is replaced by the next.
// Source files stay as they are: the go command reads the mutant through -overlay.
//
// A mutant first meets the short tests of its own package, then those of the
// packages that import it. One clean run with coverage per test package selects
// the tests that execute the mutated line. Coverage misses child processes: a line
// that only a child process executes counts as not executed.
//
// The verdicts are noticed (a test failed), hung (a test ran into the limit of
// time or memory), SURVIVED, not executed (no test reaches the line) and judged
// (survivors.txt has the mutant, with the reason why no test should notice it). A
// survivor makes the command fail. An entry of survivors.txt names file, function
// and texts, never a line number; the command reports entries that match nothing.
//
// It may import the standard library only.
//
// Invariant: hand.txt fits the program. A test holds that the file of each entry
// has the text exactly once and that the named tests exist.
package main
