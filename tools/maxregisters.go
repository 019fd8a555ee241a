package main

import (
	"fmt"
	"io"
	"os"
)

// maxregisters reads the output of nvdisasm -c for sm_90a kernels. It fails if a thread uses a register that its
// warpgroup has released with setmaxnreg; such a use destroys the CUDA context. ptxas allocates the registers, and some
// versions allocate wrong ones. A jump that maxregisters cannot follow, or code that no jump reaches, is a failure too.
func maxregisters([]string) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	return checkListing(string(text), os.Stdout)
}

// checkListing checks a listing and prints a line for each wrong instruction. If there is one, it returns an error.
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
