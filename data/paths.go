package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"mt/base/files"
)

// source is a file whose rows or text are to be read.
type source struct {
	path  string // absolute
	named bool   // given by its own name, so never skipped
	size  int64
	mtime int64 // nanoseconds since 1970
	set   int   // index of its data set in Spec.sets
}

// CheckFiles looks for the files of spec's data sets without reading them. It returns the error that Open would
// return for missing files or impossible settings.
func CheckFiles(spec Spec) error {
	if _, _, err := findSources(&spec); err != nil {
		return asSpecError(err)
	}
	return nil
}

// findSources lists the files of s, in the order in which they are read. hidden is the number of hidden files in its
// directories, which are skipped; a hidden directory counts as one. It sets s.sets, with one data set for each of
// s.entries().
func findSources(s *Spec) (found []source, hidden int, err error) {
	if s.Dir, err = localPath(s.Dir); err != nil {
		return nil, 0, err
	}
	info, err := readInfo(s.Dir)
	if err != nil {
		return nil, 0, err
	}
	seen := map[source]bool{}
	s.sets, s.notes = nil, nil
	for i, from := range s.entries() {
		set, entry := dataSet{Name: from.Path}, from.Path
		raw, described := info[entry]
		switch own := !from.plain(); {
		case described && own:
			return nil, 0, fmt.Errorf("%s has %q and says how it is read; remove the keys beside that path, or give the file as path", filepath.Join(s.Dir, infoName), entry)
		case described:
			if set, from.Path, err = parseInfo(entry, raw, s.Hub); err != nil {
				return nil, 0, fmt.Errorf("%s: %w", filepath.Join(s.Dir, infoName), err)
			}
		case own:
			if set, err = from.dataSet(); err != nil {
				return nil, 0, fmt.Errorf("%s: %w", entry, err)
			}
		}
		sources, h, err := s.findEntry(&from)
		if err != nil && !described {
			sources, h, err = s.findOnHub(&from, err)
		}
		switch {
		case err == nil:
		case described:
			err = fmt.Errorf("%s: %q: %w", filepath.Join(s.Dir, infoName), entry, err)
		case info != nil:
			err = fmt.Errorf("%w; %s there has %s", err, infoName, listed(info))
		case !strings.ContainsAny(entry, "./*?["):
			err = fmt.Errorf("%w; if it is a name of %s, set dataset_dir to the folder that holds that file", err, infoName)
		}
		if err != nil {
			return nil, 0, err
		}
		hidden += h
		s.sets = append(s.sets, set)
		for _, src := range sources {
			key := source{path: src.path}
			if src.set = i; described || !from.plain() { // two entries may use different parts or columns of a file
				key.set = i + 1
			}
			if !seen[key] {
				seen[key] = true
				found = append(found, src)
			}
		}
	}
	if own := s.Columns.given(); len(own) > 0 && !slices.ContainsFunc(s.sets, func(d dataSet) bool { return d.Format == "" }) {
		return nil, 0, &SpecError{own[0], fmt.Errorf("%s is given, and %s says which columns %s has; name them there", own[0], s.describedIn(), s.entries()[0].Path)}
	}
	return found, hidden, nil
}

// listed returns the names of the data sets in info, for an error message. If there are many, it returns only the
// first ones.
func listed(info map[string]json.RawMessage) string {
	const most = 10
	names := slices.Sorted(maps.Keys(info))
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// describedIn says, for an error message, where the form of the rows is configured: in the key datasets, or in a
// file.
func (s *Spec) describedIn() string {
	if len(s.Sets) > 0 {
		return "datasets"
	}
	return filepath.Join(s.Dir, infoName)
}

// findOnHub looks for a data set of the Hugging Face Hub on this machine, for an entry that is not a file. missed is
// the error of looking for the file, and is returned if there is no such data set. Otherwise the results are the same
// as findEntry's.
func (s *Spec) findOnHub(entry *Set, missed error) ([]source, int, error) {
	if s.Hub == nil || !errors.Is(missed, fs.ErrNotExist) {
		return nil, 0, missed
	}
	dir, err := s.Hub(entry.Path)
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("%w; %w", missed, err)
	case dir == "":
		return nil, 0, missed
	}
	there := *entry
	there.Path, there.hub = dir, true
	return s.findEntry(&there)
}

// directory lists the files of the directory name, and the number of hidden files that it skips. If the directory is
// laid out as a data set of the Hub, it lists only the files of the wanted split.
func (s *Spec) directory(name string, entry *Set) ([]source, int, error) {
	if len(entry.Files) > 0 {
		found, err := entry.filesIn(name)
		return found, 0, err
	}
	w := walker{}
	if err := w.directory(name); err != nil {
		return nil, 0, err
	}
	if len(w.found) == 0 {
		return nil, 0, w.nothing("directory %s holds no files to read (hidden ones do not count)", name)
	}
	s.passedOver(&w)
	files := w.sorted()
	r, err := repositoryOf(name, files, entry.Config)
	if err != nil {
		return nil, 0, err
	}
	note := ""
	switch want := entry.wanted(); {
	case r == nil && want != "" && want != splitTrain:
		return nil, 0, fmt.Errorf("%s is not laid out by splits, so it has no split called %s; name the files in data_files", name, want)
	case r == nil && (entry.hub || hasCard(name)):
		if files, note, err = dataIn(name, files); err != nil {
			return nil, 0, err
		}
	case r == nil:
		files, note = withoutAbout(name, files)
	default:
		if files, note, err = r.choose(want, s.Held); err != nil {
			return nil, 0, err
		}
	}
	if note != "" {
		s.notes = append(s.notes, note)
	}
	return files, w.hidden, nil
}

// passedOver adds a note for the user about pipes, devices and sockets that w found and did not
// read.
func (s *Spec) passedOver(w *walker) {
	if n := len(w.odd); n > 0 {
		s.notes = append(s.notes, fmt.Sprintf("passed over %d that are no files (a pipe, a device or a socket), the first %s", n, w.odd[0]))
	}
}

// findEntry lists the files of the data set entry, and the number of hidden files that it skips.
func (s *Spec) findEntry(entry *Set) ([]source, int, error) {
	dir := s.Dir
	if slices.Contains(Builders, entry.Path) && len(entry.Files) > 0 {
		found, err := entry.filesIn(dir)
		return found, 0, err
	}
	name, err := localPath(entry.Path)
	if err != nil {
		return nil, 0, err
	}
	if name == "" {
		return nil, 0, errors.New("a file name is empty")
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	if name, err = filepath.Abs(name); err != nil {
		return nil, 0, err
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return s.directory(name, entry)
	case err == nil && !info.Mode().IsRegular():
		return nil, 0, notRegular(files.Regular(name, info))
	case err == nil && (entry.wanted() != "" && entry.wanted() != splitTrain || len(entry.Files) > 0 || entry.Config != ""):
		return nil, 0, fmt.Errorf("%s is one file, which has no splits but train, no configs and no data_files; remove these keys", name)
	case err == nil:
		return []source{newSource(name, true, info)}, 0, nil
	case !hasGlob(name):
		return nil, 0, missing(entry.Path, name, err)
	}
	w := walker{}
	if err := w.glob("/", strings.Split(filepath.ToSlash(name), "/")[1:]); err != nil {
		return nil, 0, err
	}
	if len(w.found) == 0 {
		return nil, 0, w.nothing("no file matches %s", name)
	}
	s.passedOver(&w)
	return w.sorted(), 0, nil
}

// missing returns the error of a missing file. entry is the user's text, and name the path that was tried. If err is
// another error, missing returns err.
func missing(entry, name string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err // the error already names the file
	}
	if entry == name {
		return &missingError{name}
	}
	return &missingError{fmt.Sprintf("%s (looked for %s)", entry, name)}
}

// missingError is the error of a missing file. It matches fs.ErrNotExist.
type missingError struct{ name string }

func (e *missingError) Error() string { return "no such file or directory: " + e.name }

// Is makes errors.Is(e, fs.ErrNotExist) true.
func (e *missingError) Is(target error) bool { return target == fs.ErrNotExist }

func newSource(name string, named bool, info fs.FileInfo) source {
	return source{path: name, named: named, size: info.Size(), mtime: info.ModTime().UnixNano()}
}

func hasGlob(name string) bool { return strings.ContainsAny(name, "*?[") }

// walker collects regular files. It follows symbolic links to files. It follows links to directories only if the
// user's path names them, never below "**" or in a whole directory: otherwise a cycle of links would have no end.
type walker struct {
	found  []source
	hidden int
	odd    []string // pipes, devices and the like
}

// nothing returns the error that no file was found. If a pipe or device was found instead, the error names it.
func (w *walker) nothing(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if len(w.odd) > 0 {
		err = fmt.Errorf("%w; %s is a pipe, a device or a socket, which is not read", err, w.odd[0])
	}
	return err
}

// sorted returns the files found, sorted by path and without duplicates.
func (w *walker) sorted() []source {
	slices.SortFunc(w.found, func(a, b source) int { return strings.Compare(a.path, b.path) })
	return slices.CompactFunc(w.found, func(a, b source) bool { return a.path == b.path })
}

// add adds the path name if it is a regular file or a link to one. It ignores missing files and dangling links, and
// counts pipes and devices in w.odd.
func (w *walker) add(name string) error {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil // it is gone, or a dangling link
	case err != nil:
		return err
	case info.Mode().IsRegular():
		w.found = append(w.found, newSource(name, false, info))
	case !info.IsDir():
		w.odd = append(w.odd, name)
	}
	return nil
}

// directory adds all files below dir, at any depth, except hidden ones.
func (w *walker) directory(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case isHidden(e.Name()):
			w.hidden++
		case e.IsDir():
			err = w.directory(name)
		default:
			err = w.add(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// glob adds the files below dir that match a pattern. parts are the path elements of the pattern, such as "data",
// "**", "*.jsonl".
func (w *walker) glob(dir string, parts []string) error {
	part, last := parts[0], len(parts) == 1
	switch {
	case part == "**":
		return w.anyDepth(dir, parts)
	case hasGlob(part):
		return w.match(dir, parts)
	case last:
		return w.add(filepath.Join(dir, part))
	}
	return w.glob(filepath.Join(dir, part), parts[1:])
}

// match handles a pattern of glob whose first element, parts[0], has wildcards but is not "**".
func (w *walker) match(dir string, parts []string) error {
	entries, err := readDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		ok, err := path.Match(parts[0], e.Name())
		if err != nil {
			return fmt.Errorf("pattern %q: %w", parts[0], err)
		}
		if !ok || isHidden(e.Name()) && !isHidden(parts[0]) {
			continue
		}
		if len(parts) == 1 {
			err = w.add(filepath.Join(dir, e.Name()))
		} else {
			err = w.glob(filepath.Join(dir, e.Name()), parts[1:])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// anyDepth handles a pattern of glob that begins with "**": it matches the rest of the pattern in
// dir and in all directories below dir. A pattern that ends with "**" means all files.
func (w *walker) anyDepth(dir string, parts []string) error {
	rest := parts[1:]
	if len(rest) == 0 {
		rest = []string{"*"}
	}
	if err := w.glob(dir, rest); err != nil {
		return err
	}
	entries, err := readDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || isHidden(e.Name()) {
			continue
		}
		if err := w.anyDepth(filepath.Join(dir, e.Name()), parts); err != nil {
			return err
		}
	}
	return nil
}

// readDir is os.ReadDir, but returns nothing if dir is not a directory.
func readDir(dir string) ([]fs.DirEntry, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || err == nil && !info.IsDir() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return os.ReadDir(dir)
}

func isHidden(name string) bool { return strings.HasPrefix(name, ".") }

var address = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]+)://(.*)$`)

// localPath returns path with variables and a leading "~" replaced. A URL of another machine is an error; a file: URL
// is a path.
func localPath(path string) (string, error) {
	m := address.FindStringSubmatch(path)
	switch {
	case m == nil:
		return ExpandVars(path)
	case strings.EqualFold(m[1], "file"):
		return ExpandVars(m[2])
	case strings.EqualFold(m[1], "hf"):
		return "", fmt.Errorf("%s is a URL, and mt reads local files only and downloads nothing; download it (`hf download --repo-type dataset ORG/NAME`) and give ORG/NAME, or the file", path)
	}
	return "", fmt.Errorf("%s is a URL, and mt reads local files only and downloads nothing; download it (`curl -LO URL`, or the tool for %s://) and give the file", path, m[1])
}

var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// ExpandVars replaces each ${NAME} by the environment variable, and a leading "~" by the user's home folder. If
// GOROOT is not set, it asks the go command. An unset variable is an error that names it.
func ExpandVars(s string) (string, error) {
	var failed error
	if rest, ok := strings.CutPrefix(s, "~"); ok && (rest == "" || rest[0] == '/') {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("%s: where is ~? %w", s, err)
		}
		s = home + rest
	}
	out := variable.ReplaceAllStringFunc(s, func(m string) string {
		name := m[2 : len(m)-1]
		value, ok := os.LookupEnv(name)
		if name == "GOROOT" && value == "" {
			value, ok = goroot()
		}
		if !ok && failed == nil {
			failed = fmt.Errorf("%s: the variable %s is not set; export %s, or write the path out", s, name, name)
		}
		return value
	})
	return out, failed
}

// goroot returns the directory of the Go installation on the PATH.
func goroot() (string, bool) {
	if out, err := exec.Command("go", "env", "GOROOT").Output(); err == nil {
		if dir := strings.TrimSpace(string(out)); dir != "" {
			return dir, true
		}
	}
	bin, err := exec.LookPath("go")
	if err != nil {
		return "", false
	}
	if bin, err = filepath.EvalSymlinks(bin); err != nil {
		return "", false
	}
	dir := filepath.Dir(filepath.Dir(bin))
	info, err := os.Stat(filepath.Join(dir, "src"))
	return dir, err == nil && info.IsDir()
}
