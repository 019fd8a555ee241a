package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// programs maps the first argument to the program that it selects. The program receives the other arguments.
var programs = map[string]func(args []string) error{
	"curves":       curves,
	"dist":         distribute,
	"maxregisters": maxregisters,
	"mutate":       mutate,
	"testsum":      testsum,
}

func main() {
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: go run ./tools %s ARGUMENTS…\n", strings.Join(slices.Sorted(maps.Keys(programs)), "|"))
		os.Exit(2)
	}
	if err := programs[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}
