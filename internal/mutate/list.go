package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// broken is a file that is broken in several ways, one at a time. Names of files
// are from the module's root, with slashes.
type broken struct {
	file string
	ways []way
}

// way is one way to break a file.
type way struct {
	from, to string // what is replaced, which the file has exactly once, and by what
	// test is a pattern for `go test -run`: names of tests joined by |, each with
	// subtests after slashes if need be.
	test string
	// in is the package of the test, as "actors"; empty: the file's own.
	in string
	// same says why nobody can tell the broken program from the whole one. Then no
	// test can fail, and none is run.
	same string
}

// mutation is one way to break one file.
type mutation struct {
	file string
	way
}

// all are the mutations of every list, in order.
func all() []mutation {
	var out []mutation
	for _, list := range [][]broken{
		ofHost, ofActors, ofDevice, ofModel, ofFiles, ofText, ofPairs, ofRuns, ofMeasure, ofRanks, ofDisks, ofKernels, ofHopper, ofLong,
		ofFamilies, ofTowers,
		ofImports, ofInstall,
		ofLatent,
		ofRecurrence,
		ofRecipes,
		ofPreferences,
	} {
		for _, b := range list {
			for _, w := range b.ways {
				if w.in == "" {
					w.in = path.Dir(b.file)
				}
				out = append(out, mutation{b.file, w})
			}
		}
	}
	return out
}

// apply returns the broken text of the mutation's file, in the module at root,
// and the line at which it is broken.
func (m mutation) apply(root string) (text []byte, line int, err error) {
	whole, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return nil, 0, err
	}
	if n := bytes.Count(whole, []byte(m.from)); n != 1 {
		return nil, 0, fmt.Errorf("%s has %q %d times, and a mutation needs it once", m.file, m.from, n)
	}
	at := bytes.Index(whole, []byte(m.from))
	return slices.Concat(whole[:at], []byte(m.to), whole[at+len(m.from):]), 1 + bytes.Count(whole[:at], []byte("\n")), nil
}
