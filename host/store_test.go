package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/fstest"
	"time"
	"unsafe"

	"mt/base/accounts"
	"mt/internal/testkit"
	"mt/model"
)

func TestStoreTakesTwelveBytesAParameter(t *testing.T) {
	for _, bf16 := range []bool{false, true} {
		before := Usage()
		l := layouts(bf16)
		s := testkit.Must(NewStore(l, recipe.Planes, poolOf(t, 2)))(t)
		var held, params, planned int64
		now := Usage()
		for p, n := range StoreBytes(l, recipe.Planes) {
			planned += n
			held += now.Now[p] - before.Now[p]
			if got := now.Now[p] - before.Now[p]; got != n {
				t.Errorf("bf16 %t: %s: %d bytes, planned %d", bf16, accounts.Purpose(p), got, n)
			}
		}
		for _, layout := range l {
			params += layout.Layer.Elems()
		}
		// Each plane of each layer is rounded up to a page, and each tensor to 128 elements. slack
		// is the most that this rounding adds.
		if slack := int64(len(l) * 4 * (pageBytes + 128*12)); held < 12*params || held > 12*params+slack {
			t.Errorf("bf16 %t: %d bytes for %d parameters", bf16, held, params)
		}
		if (s.Layers[1].Lo != nil) != bf16 {
			t.Errorf("bf16 %t: lo plane of %d elements", bf16, len(s.Layers[1].Lo))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if after := Usage(); after.Now != before.Now || after.Total != before.Total {
			t.Errorf("after Close %v, before %v", after, before)
		}
		if peak := Usage().PeakTotal; peak < before.Total+planned {
			t.Errorf("peak %d, held %d", peak, before.Total+planned)
		}
	}
}

func TestLayersArePageAlignedAndApart(t *testing.T) {
	s := newStore(t, layouts(true), nil)
	for i, l := range s.Layers {
		for name, p := range map[string]unsafe.Pointer{"tile": unsafe.Pointer(unsafe.SliceData(l.Tile)),
			"m": unsafe.Pointer(unsafe.SliceData(l.Plane("m"))), "v": unsafe.Pointer(unsafe.SliceData(l.Plane("v")))} {
			if uintptr(p)%pageBytes != 0 {
				t.Errorf("layer %d: %s at %p", i, name, p)
			}
		}
	}
	fillStore(s, 1, mean)
	first := make([]float32, 19)
	s.Layers[0].ReadRows(0, 0, 1, first)
	fillStore(&Store{Layers: s.Layers[1:]}, 2, mean)
	again := make([]float32, 19)
	s.Layers[0].ReadRows(0, 0, 1, again)
	sameFloats(t, "first row", first, again)
}

func TestReferencesOwnNothing(t *testing.T) {
	s := newStore(t, layouts(true), nil)
	head := s.Layers[2]
	if len(head.Tile) != int(head.Layout.TileBytes) || len(head.Plane("m")) != 4*int(head.Layout.Elems) || head.Lo != nil {
		t.Errorf("head: tile %d, m %d, lo %d", len(head.Tile), len(head.Plane("m")), len(head.Lo))
	}
}

func TestTooLargeAModelIsAnError(t *testing.T) {
	if !AvailableMemory().Known {
		t.Skip("the system does not say how much memory there is")
	}
	before := Usage().Now
	huge := model.NewLayout(embedding(1<<30, 1<<20), true, model.Param{})
	_, err := NewStore([]model.Layout{huge}, recipe.Planes, nil)
	var oom *OutOfMemory
	if !errors.As(err, &oom) || oom.Requested < 12<<50 || !oom.Room.Known {
		t.Errorf("error %v", err)
	}
	if after := Usage().Now; after != before {
		t.Errorf("it kept %v, had %v", after, before)
	}
}

// TestSmallArenasShareAReading: checkAvailable reads the available memory once for several small
// arenas, until they have used their part of it or the reading is a second old. An arena that does
// not fit is refused even right after a reading.
func TestSmallArenasShareAReading(t *testing.T) {
	room := AvailableMemory()
	if !room.Known || room.Bytes < 1<<30 {
		t.Skip("the system does not say how much memory there is, or there is less than 1 GiB")
	}
	check := func(bytes int64, fits bool) int64 {
		t.Helper()
		var oom *OutOfMemory
		if err := checkAvailable("a test", bytes); (err == nil) != fits || err != nil && !errors.As(err, &oom) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
		return reading.left
	}
	reading.left = 0
	first := check(1, true)
	if first < 1<<20 || first > room.Bytes {
		t.Fatalf("after a reading of %d bytes small arenas may take %d", room.Bytes, first)
	}
	reading.at = time.Now().Add(time.Hour) // so the test may be slow
	if left := check(1<<10, true); left != first-1<<10 {
		t.Errorf("of %d bytes %d are left after 1024", first, left)
	}
	if check(first, true); reading.at.After(time.Now()) {
		t.Error("more than small arenas may take was not looked up")
	}
	reading.at = time.Now().Add(time.Hour)
	check(1<<60, false)
	reading.at, reading.left = time.Now().Add(-2*readingHolds), 1<<60
	check(1<<59, false)
}

func TestArena(t *testing.T) {
	for _, bytes := range []int64{0, 1, pageBytes, 3*touchBytes + 5} {
		before := Usage()
		a := testkit.Must(NewArena(accounts.GradientSlabs, bytes, poolOf(t, 2)))(t)
		b := a.Bytes()
		if int64(len(b)) != bytes || Usage().Now[accounts.GradientSlabs] != before.Now[accounts.GradientSlabs]+bytes {
			t.Errorf("%d bytes: got %d, counted %d", bytes, len(b), Usage().Now[accounts.GradientSlabs])
		}
		r := rand.New(rand.NewPCG(1, 1))
		for range min(bytes, 1000) {
			if i := r.Int64N(bytes); b[i] != 0 {
				t.Fatalf("%d bytes: byte %d is %d", bytes, i, b[i])
			}
		}
		for range 2 {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
		if Usage().Now != before.Now {
			t.Errorf("%d bytes: after Close %v", bytes, Usage())
		}
	}
	if _, err := NewArena(accounts.GradientSlabs, -1, nil); err == nil {
		t.Error("no error for a negative size")
	}
}

func TestAvailableMemory(t *testing.T) {
	const (
		meminfo  = "MemTotal: 9000000 kB\nMemFree: 10 kB\nMemAvailable:  4000000 kB\n"
		free     = 4000000 << 10
		byKernel = "MemAvailable of /proc/meminfo"
		status   = "Name:\tmt\nVmSize:\t  2000000 kB\nVmData:\t  1000000 kB\n"
		none     = "Max data size             unlimited            unlimited            bytes     \n"
	)
	limit := func(name string, bytes int64) string {
		return fmt.Sprintf("Limit  Soft Limit  Hard Limit  Units\n%-25s %-20d unlimited            bytes     \n", name, bytes)
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  int64 // -1 where it is not known
		by    string
	}{
		"nothing known": {nil, -1, ""},
		"no group":      {map[string]string{"proc/meminfo": meminfo}, free, byKernel},
		"a node without processors": {map[string]string{"proc/meminfo": meminfo, "sys/devices/system/node/has_memory": "0-1,3\n",
			"sys/devices/system/node/node0/cpulist": "0-71\n", "sys/devices/system/node/node1/cpulist": "\n", "sys/devices/system/node/node0/meminfo": "Node 0 MemFree: 7 kB\n",
			"sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:  9000 kB\nNode 1 MemFree:  2000 kB\nNode 1 Active(file): 300 kB\nNode 1 Inactive(file):  40 kB\nNode 1 Active: 5 kB\nNode 1 SReclaimable: 5 kB\nNode 1\nNode 1 MemFree: x kB\n"},
			free - 2345<<10, "MemAvailable of /proc/meminfo, without NUMA nodes that have no processors"},
		"all in use": {map[string]string{"proc/meminfo": "MemAvailable: 0 kB\n"}, 0, byKernel},
		"version 2": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": "5000\n",
			"sys/fs/cgroup/a/memory.max": "1000000\n", "sys/fs/cgroup/a/memory.current": "700000\n",
			"sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 50000\nactive_file 7000\n"}, 357000, "memory.max of the control group /a is 977 KiB"},
		"a group inside leaves less": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "300\n", "sys/fs/cgroup/a/b/memory.current": "100\n",
			"sys/fs/cgroup/a/memory.max": "1000\n", "sys/fs/cgroup/a/memory.current": "100\n"}, 200, "memory.max of the control group /a/b is 300 B"},
		"a group around leaves less": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/b/memory.current": "100\n",
			"sys/fs/cgroup/a/memory.max": "300\n", "sys/fs/cgroup/a/memory.current": "100\n"}, 200, "memory.max of the control group /a is 300 B"},
		"version 1": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu:/x\n4:memory,foo:/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "500000\n"},
			1500000, "memory.limit_in_bytes of the control group / is 1.9 MiB"},
		"version 1 without limit": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "500000\n"}, free, byKernel},
		"limit above what there is": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "100000000000\n", "sys/fs/cgroup/memory.current": "1\n"}, free, byKernel},
		"limit used up": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "1001\n"}, 0, "memory.max of the control group / is 1000 B"},
		"limit full of page cache": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "1000\n", "sys/fs/cgroup/memory.stat": "active_file 900\n"},
			900, "memory.max of the control group / is 1000 B"},
		"ulimit -v": {map[string]string{"proc/meminfo": meminfo, "proc/self/status": status, "proc/self/limits": none + limit("Max address space", 3<<30)},
			3<<30 - 2000000<<10 - limitSlack, "ulimit -v is 3.0 GiB"},
		"ulimit -d": {map[string]string{"proc/meminfo": meminfo, "proc/self/status": status, "proc/self/limits": limit("Max data size", 3<<30)},
			3<<30 - 1000000<<10 - limitSlack, "ulimit -d is 3.0 GiB"},
		"ulimit -v below what is mapped": {map[string]string{"proc/self/status": status, "proc/self/limits": limit("Max address space", 1<<30)},
			0, "ulimit -v is 1.0 GiB"},
		"no ulimit":    {map[string]string{"proc/meminfo": meminfo, "proc/self/status": status, "proc/self/limits": none}, free, byKernel},
		"broken lines": {map[string]string{"proc/meminfo": "MemAvailable:\nMemAvailable: x kB\n", "proc/self/cgroup": "what\n", "proc/self/limits": "Max data size\n"}, -1, ""},
	} {
		fsys := fstest.MapFS{}
		for path, text := range c.files {
			fsys[path] = &fstest.MapFile{Data: []byte(text)}
		}
		want := Room{Known: true, Bytes: c.want, By: c.by}
		if c.want < 0 {
			want = Room{}
		}
		if got := availableIn(fsys); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// TestWordsOfLackingMemory: the out-of-memory error omits an amount that is unknown or that would
// be shown as 0.
func TestWordsOfLackingMemory(t *testing.T) {
	for want, room := range map[string]Room{
		"out of host memory: moments wants 4.6 GiB":                                             {},
		"out of host memory: moments wants 4.6 GiB, none is available (ulimit -v is 1.0 GiB)":   {true, 0, "ulimit -v is 1.0 GiB"},
		"out of host memory: moments wants 4.6 GiB, 12 KiB is available (ulimit -v is 1.0 GiB)": {true, 12 << 10, "ulimit -v is 1.0 GiB"},
	} {
		if got := (&OutOfMemory{What: "moments", Requested: 4_900_000_000, Room: room}).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestUse: after SetPool, updates run on the new pool's threads.
func TestUse(t *testing.T) {
	first, second := poolOf(t, 1), poolOf(t, 2)
	s := &Store{Layers: []*LayerState{{pool: first}, {pool: first}}}
	s.SetPool(second)
	for i, l := range s.Layers {
		if l.pool != second {
			t.Errorf("layer %d is updated on the first cores", i)
		}
	}
}
