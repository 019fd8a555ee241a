package main

import (
	"fmt"
	"io"
	"os"
)

// maxregisters reads what nvdisasm -c prints of kernels for sm_90a and fails if a thread uses a register that its
// warpgroup has given away by setmaxnreg. A warpgroup that does so loses the context. ptxas chooses the registers, and
// some versions choose wrong ones. What it cannot follow, a jump or a place that nothing jumps to, is a failure.
func maxregisters([]string) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	return checkListing(string(text), os.Stdout)
}

// checkListing checks a listing, prints a line for each instruction that is wrong, and returns an error if
// there is one.
func checkListing(text string, out io.Writer) error {
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
