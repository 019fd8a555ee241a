package data

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hasCard tells whether a directory has the card of a data set: a README.md with a head.
func hasCard(dir string) bool {
	text, err := readSmall(filepath.Join(dir, cardName), maxCard)
	return err == nil && cardHead(string(text)) != ""
}

// dataIn gives the files of a published data set without those that describe it, which are
// never text, and a note on what it left out. It is an error where nothing is left but
// archives and other files that mt does not read.
func dataIn(dir string, files []source) (found []source, note string, err error) {
	found = slices.DeleteFunc(slices.Clone(files), func(f source) bool { return isAbout(f.path) })
	if len(found) == 0 {
		return nil, "", errNoRows(dir, files)
	}
	first, only := firstAlien(found)
	switch {
	case only != nil:
		return nil, "", fmt.Errorf("%s holds no data that mt reads: %s: %s", dir, filepath.Base(first), only)
	case len(found) < len(files):
		i := slices.IndexFunc(files, func(f source) bool { return isAbout(f.path) })
		note = fmt.Sprintf("%s: %d file(s) about the data set are no data, the first %s", dir, len(files)-len(found), filepath.Base(files[i].path))
	}
	return found, note, nil
}

// errNoRows is the error of a data set of files that all describe it.
func errNoRows(dir string, files []source) error {
	var names []string
	script := ""
	for _, f := range files {
		name := filepath.Base(f.path)
		if names = append(names, name); script == "" && strings.HasSuffix(name, ".py") {
			script = name
		}
	}
	const most = 5
	if len(names) > most {
		names = append(names[:most], "…")
	}
	if script == "" {
		return fmt.Errorf("%s holds no data, only %s: download all of the data set", dir, strings.Join(names, ", "))
	}
	return fmt.Errorf("%s holds no data, only %s: %s is a loading script, which mt does not run; "+
		"write the rows out with the datasets library (load_dataset(…).to_parquet(…)), or take the data set's branch refs/convert/parquet", dir, strings.Join(names, ", "), script)
}

// firstAlien is the first file and what it is, where mt reads none of the files; nil where
// one of them can be read.
func firstAlien(files []source) (path string, what *alien) {
	for _, f := range files {
		a, is := alienFile(f.path)
		if !is {
			return "", nil
		}
		if what == nil {
			path, what = f.path, &a
		}
	}
	return path, what
}

// alienFile says which alien a file is, by its first bytes.
func alienFile(path string) (alien, bool) {
	f, err := os.Open(path)
	if err != nil {
		return alien{}, false // reading it tells why
	}
	defer func() { _ = f.Close() }() // nothing was written
	head := make([]byte, headBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && n == 0 {
		return alien{}, false
	}
	return alienOf(path, head[:n])
}
