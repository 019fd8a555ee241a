package main

import (
	"fmt"
	"io"
	"os"
)

// maxregisters reads a listing of sm_90a kernels (output of nvdisasm -c) from standard input. It fails if a thread uses
// a register that its warpgroup has released with setmaxnreg, because that destroys the CUDA context. The compiler
// ptxas allocates registers, and some of its versions use released ones. A jump that maxregisters cannot follow, or
// code that no jump reaches, is a failure too.
func maxregisters([]string) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	return checkListing(string(text), os.Stdout)
}

// checkListing checks a listing and prints a line to out for each wrong instruction. If there is one, it returns an
// error.
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
