package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = run(string(text), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "maxregisters:", err)
		os.Exit(1)
	}
}

// run checks a listing, prints a line for each instruction that is wrong, and returns an error if
// there is one.
func run(text string, out io.Writer) error {
	l, err := parse(text)
	if err != nil {
		return err
	}
	bad, limits := check(l)
	for _, b := range bad {
		fmt.Fprintln(out, b)
	}
	if limits == 0 {
		return fmt.Errorf("no USETMAXREG in the listing: is it of a kernel for sm_90a, by nvdisasm -c?")
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d instructions use registers that setmaxnreg has taken from their threads, or may", len(bad))
	}
	return nil
}
