package powercut

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"mt/checkpoint"
)

// Loss selects which unsynced changes a power cut loses.
type Loss int

// The losses that real file systems can have. NamesAndContent loses all unsynced changes.
// ContentAlone loses unsynced content but no names, as on XFS and on ext4 with noauto_da_alloc,
// which write names early. NamesButTheLast stands for file systems without a journal, which may
// write names in another order than they were changed.
const (
	NamesAndContent Loss = iota
	ContentAlone
	NamesButTheLast // in each directory, loses all unsynced changes of names but the last
)

// Losses lists all values of Loss.
var Losses = []Loss{NamesAndContent, ContentAlone, NamesButTheLast}

// Disk is a checkpoint.FS over the directory tree at root. The tree's content at New counts as synced. Methods are
// safe for concurrent use.
type Disk struct {
	checkpoint.FS
	root  string
	after func(op string)

	mu  sync.Mutex
	top *node
}

// node is a file or a directory of the simulated disk, as it is now and as the last syncs left it.
type node struct {
	names   map[string]*node // of a directory; nil: this is a file
	synced  map[string]*node // names that are on disk
	last    map[string]*node // the last unsynced change to names; a nil node: removed
	content []byte           // of a file: the synced content
	other   *os.File         // open file that was not made through the Disk
}

// change sets several names of a directory in one operation, such as the two names of a rename. A nil node removes
// the name.
func (n *node) change(to map[string]*node) {
	n.last = to
	for name, below := range to {
		if n.names[name] = below; below == nil {
			delete(n.names, name)
		}
	}
}

func directory() *node { return &node{names: map[string]*node{}, synced: map[string]*node{}} }

// New returns a Disk over the directory tree at root. After each operation it calls `after` with the operation and
// the last part of its path, such as "rename config.yaml.tmp". `after` may call Cut. Writes are not reported, since
// unsynced content never survives a cut.
func New(root string, after func(op string)) (*Disk, error) {
	d := &Disk{FS: checkpoint.OS(), root: root, after: after, top: directory()}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		n := directory()
		if !e.IsDir() {
			n = &node{}
			if n.content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		in, name := d.place(path)
		in.names[name], in.synced[name] = n, n
		return nil
	})
	return d, err
}

// place returns the node of the directory that contains path, and path's name in it.
func (d *Disk) place(path string) (*node, string) {
	rel, err := filepath.Rel(d.root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		panic("powercut: " + path + " is not below " + d.root)
	}
	at := d.top
	dir, name := filepath.Split(rel)
	for part := range strings.SplitSeq(filepath.Clean(dir), string(filepath.Separator)) {
		if part != "." {
			at = at.names[part]
		}
	}
	return at, name
}

// at returns the node at path.
func (d *Disk) at(path string) *node {
	if path == d.root {
		return d.top
	}
	in, name := d.place(path)
	return in.names[name]
}

// note applies a successful operation: it calls change, which applies the operation to the tree of
// nodes, and then d.after. If the operation failed with err, it only returns err.
func (d *Disk) note(op, path string, err error, change func()) error {
	if err != nil {
		return err
	}
	d.mu.Lock()
	change()
	d.mu.Unlock()
	if d.after != nil {
		d.after(op + " " + filepath.Base(path))
	}
	return nil
}

// MkdirAll implements checkpoint.FS.
func (d *Disk) MkdirAll(path string) error {
	return d.note("make directory", path, d.FS.MkdirAll(path), func() { d.makeAll(path) })
}

func (d *Disk) makeAll(path string) {
	if path == d.root {
		return
	}
	d.makeAll(filepath.Dir(path))
	if in, name := d.place(path); in.names[name] == nil {
		in.change(map[string]*node{name: directory()})
	}
}

// Mkdir implements checkpoint.FS.
func (d *Disk) Mkdir(path string) error {
	return d.note("make directory", path, d.FS.Mkdir(path), func() {
		in, name := d.place(path)
		in.change(map[string]*node{name: directory()})
	})
}

// Create implements checkpoint.FS.
func (d *Disk) Create(path string) (checkpoint.File, error) {
	f, err := d.FS.Create(path)
	n := &node{}
	err = d.note("create", path, err, func() {
		in, name := d.place(path)
		if old := in.names[name]; old != nil { // truncated
			old.content, n = nil, old
			return
		}
		in.change(map[string]*node{name: n})
	})
	return &file{File: f, d: d, path: path, n: n}, err
}

// Append implements checkpoint.FS.
func (d *Disk) Append(path string) (checkpoint.Log, error) {
	f, err := d.FS.Append(path)
	d.mu.Lock()
	defer d.mu.Unlock()
	return &log{Log: f, d: d, path: path, n: d.at(path)}, err
}

// Rename implements checkpoint.FS.
func (d *Disk) Rename(from, to string) error {
	return d.note("rename", from, d.FS.Rename(from, to), func() {
		in, name := d.place(from)
		into, newName := d.place(to)
		n := in.names[name]
		if in == into {
			in.change(map[string]*node{name: nil, newName: n})
			return
		}
		in.change(map[string]*node{name: nil})
		into.change(map[string]*node{newName: n})
	})
}

// Link implements checkpoint.FS. The linked file may have been created without d. Once d has synced such a file,
// later writes into it survive a power cut too.
func (d *Disk) Link(from, to string) error {
	d.mu.Lock()
	n, err := d.made(from)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return d.note("link", to, d.FS.Link(from, to), func() {
		in, name := d.place(to)
		in.change(map[string]*node{name: n})
	})
}

// made returns the node of the file at path. A file that was created or replaced without d has no node yet; made
// then opens the file and adds a node for it.
func (d *Disk) made(path string) (*node, error) {
	in, name := d.place(path)
	n := in.names[name]
	if n != nil && n.other == nil {
		return n, nil // made by d
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if n != nil && sameFile(n.other, f) {
		return n, f.Close()
	}
	n = &node{other: f} // kept open: its content later shows whether somebody wrote into the file
	in.change(map[string]*node{name: n})
	return n, nil
}

func sameFile(a, b *os.File) bool {
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// SyncFile implements checkpoint.FS.
func (d *Disk) SyncFile(path string) error {
	d.mu.Lock()
	n, err := d.made(path)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return d.sync(path, n)
}

// Exchange implements checkpoint.FS.
func (d *Disk) Exchange(a, b string) error {
	return d.note("exchange", a, d.FS.Exchange(a, b), func() {
		inA, nameA := d.place(a)
		inB, nameB := d.place(b)
		if inA != inB {
			panic("powercut: only neighbours are exchanged")
		}
		inA.change(map[string]*node{nameA: inA.names[nameB], nameB: inA.names[nameA]})
	})
}

// RemoveAll implements checkpoint.FS.
func (d *Disk) RemoveAll(path string) error {
	return d.note("remove", path, d.FS.RemoveAll(path), func() {
		in, name := d.place(path)
		in.change(map[string]*node{name: nil})
	})
}

// SyncDir implements checkpoint.FS. It does not wait for the real disk.
func (d *Disk) SyncDir(path string) error {
	return d.note("sync directory", path, nil, func() {
		n := d.at(path)
		n.synced, n.last = maps.Clone(n.names), nil
	})
}

// Cut writes the files that a power cut at this moment would leave to the directory to, which Cut creates.
func (d *Disk) Cut(loss Loss, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.top.write(loss, to)
}

// Digest returns a hash of the files that Cut would write. Equal digests mean equal files.
func (d *Disk) Digest(loss Loss) ([sha256.Size]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.top.digest(loss)
}

func (n *node) digest(loss Loss) (sum [sha256.Size]byte, err error) {
	if n.names == nil {
		content, err := n.survives()
		return sha256.Sum256(append([]byte("file "), content...)), err
	}
	list, left := []byte("directory "), n.left(loss)
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if sum, err = left[name].digest(loss); err != nil {
			return sum, err
		}
		list = append(fmt.Appendf(list, "%q ", name), sum[:]...)
	}
	return sha256.Sum256(list), nil
}

func (n *node) write(loss Loss, to string) error {
	if n.names == nil {
		content, err := n.survives()
		if err != nil {
			return err
		}
		return os.WriteFile(to, content, 0o600)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for name, below := range n.left(loss) {
		if err := below.write(loss, filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// survives returns the content that a file has after a power cut.
func (n *node) survives() ([]byte, error) {
	if n.other == nil || n.content == nil {
		return n.content, nil
	}
	content := make([]byte, len(n.content))
	_, err := n.other.ReadAt(content, 0)
	return content, err
}

// left returns the names that a directory has after a power cut with the given loss.
func (n *node) left(loss Loss) map[string]*node {
	left := n.synced
	switch loss {
	case ContentAlone:
		left = n.names
	case NamesButTheLast:
		left = maps.Clone(n.synced)
		maps.Copy(left, n.last)
		maps.DeleteFunc(left, func(_ string, below *node) bool { return below == nil })
	}
	return left
}

// file is a checkpoint.File being written; syncing it marks the content of its node n as synced.
type file struct {
	checkpoint.File
	d    *Disk
	path string
	n    *node
}

// Flush implements checkpoint.File.
func (f *file) Flush(off, n int64) {}

// Sync implements checkpoint.File.
func (f *file) Sync() error { return f.d.sync(f.path, f.n) }

// sync marks the content of n, the file at path, as synced.
func (d *Disk) sync(path string, n *node) error {
	content, err := os.ReadFile(path)
	return d.note("sync", path, err, func() { n.content = content })
}

// log is a checkpoint.Log, which is only appended to; syncing it marks the content of its node n as synced.
type log struct {
	checkpoint.Log
	d    *Disk
	path string
	n    *node
}

// Sync implements checkpoint.Log.
func (l *log) Sync() error { return l.d.sync(l.path, l.n) }
