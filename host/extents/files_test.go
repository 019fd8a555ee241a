package extents

import (
	"strings"
	"testing"
	"time"

	"mt/internal/testkit"
)

// dying is a file that a killed process still has locked: the first attempts to lock it fail.
type dying struct {
	file
	tries *int
}

func (d dying) Lock() error {
	if *d.tries--; *d.tries >= 0 {
		return errLocked
	}
	return d.file.Lock()
}

// TestLockOfAKilledRun: locking waits up to two seconds for the lock of a killed process. A lock that stays belongs to
// another run.
func TestLockOfAKilledRun(t *testing.T) {
	for _, c := range []struct {
		tries int // that find the file locked
		waits time.Duration
		want  string
	}{{0, 0, ""}, {2, 2 * lockPause, ""}, {lockTries - 1, (lockTries - 1) * lockPause, ""},
		{lockTries, (lockTries - 1) * lockPause, "another run keeps its state there now"}} {
		o, tries, waited := three(t, 1), c.tries, time.Duration(0)
		o.open = func(path string, fresh bool) (file, error) {
			f, err := openFile(path, fresh)
			return dying{f, &tries}, err
		}
		o.pause = func(d time.Duration) { waited += d }
		e, err := Open(o)
		if err == nil {
			err = e.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("locked for %d tries: %v", c.tries, err)
		}
		if waited != c.waits {
			t.Errorf("locked for %d tries: waits %v, want %v", c.tries, waited, c.waits)
		}
	}
	if all := (lockTries - 1) * lockPause; all != 2*time.Second {
		t.Errorf("a lock that stays is waited for for %v", all)
	}
}

// TestOnlyWholeExtents: Read and Write panic if the memory has not the size of the extent.
func TestOnlyWholeExtents(t *testing.T) {
	o := three(t, 1)
	o.Chunk = BlockBytes
	e := testkit.Must(Open(o))(t)
	defer e.Close()
	part := memory(t, BlockBytes, nil)
	for name, move := range map[string]func(int, []byte) error{"read": e.Read, "written": e.Write} {
		func() {
			defer func() {
				if said, ok := recover().(string); !ok || !strings.Contains(said, "bytes of memory for extent 0") {
					t.Errorf("a part is %s as if it were the extent: %q", name, said)
				}
			}()
			_ = move(0, part)
		}()
	}
}
