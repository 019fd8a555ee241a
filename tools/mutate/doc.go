// Command mutate asks whether the tests notice a wrong line. It draws small
// changes of the named packages, makes one at a time (go help build, -overlay;
// source files stay as they are), and runs tests until one fails:
//
//	go run ./tools/mutate host/optim            # 30 mutants of a package
//	go run ./tools/mutate -n 5 -seed 2 ./...    # 5 others of every package
//	go run ./tools/mutate -list host/optim      # which mutants are drawn
//	go run ./tools/mutate -hand host/optim      # the mutants of hand.txt
//
// A mutant first meets the short tests of its own package, then those of the
// packages that import it. Clean runs with coverage select the tests that execute
// the mutated line. A line that only child processes execute counts as not executed.
// Verdicts: noticed (a test failed), hung (a limit of time or memory), SURVIVED,
// not executed, judged (survivors.txt has the mutant and a reason). A survivor
// makes the command fail. A mutant that does not compile is drawn again.
// It may import the standard library only.
//
// Invariant: hand.txt fits the program. A test holds that the file of each entry
// has its text exactly once and that the named tests exist.
package main
