package parallel

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestRunCallsEachIndexOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 8} {
		p := New(threads)
		for _, n := range []int{0, 1, 2, 3, 7, 64, 1000} {
			t.Run(fmt.Sprintf("threads=%d/n=%d", threads, n), func(t *testing.T) {
				counts := make([]int32, n)
				p.Run(n, func(i int) { atomic.AddInt32(&counts[i], 1) })
				for i, c := range counts {
					if c != 1 {
						t.Fatalf("f(%d) was called %d times", i, c)
					}
				}
			})
		}
		p.Close()
	}
}

func TestThreads(t *testing.T) {
	cases := []struct{ ask, want int }{{0, runtime.GOMAXPROCS(0)}, {1, 1}, {5, 5}, {-3, 1}}
	for _, c := range cases {
		p := New(c.ask)
		if got := p.Threads(); got != c.want {
			t.Errorf("New(%d).Threads() = %d, want %d", c.ask, got, c.want)
		}
		p.Close()
	}
}

// TestRunUsesWorkers: at least two goroutines take part in a call of Run. The test's two indices
// wait for each other, so with one goroutine they would never return.
func TestRunUsesWorkers(t *testing.T) {
	p := New(2)
	defer p.Close()
	for range 200 {
		var both sync.WaitGroup
		both.Add(2)
		p.Run(2, func(int) {
			both.Done()
			both.Wait()
		})
	}
}

// TestRunWakesSleepers: workers take part in Run also after all of them have stopped polling and
// sleep.
func TestRunWakesSleepers(t *testing.T) {
	p := New(4)
	defer p.Close()
	for range 50 {
		for p.sleepers.Load() != 3 {
			runtime.Gosched()
		}
		var all sync.WaitGroup
		all.Add(4)
		p.Run(4, func(int) {
			all.Done()
			all.Wait()
		})
	}
}

func TestConcurrentAndNestedRun(t *testing.T) {
	p := New(3)
	defer p.Close()
	var calls atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 20 {
				p.Run(5, func(int) {
					p.Run(4, func(int) {
						p.Run(3, func(int) { calls.Add(1) })
					})
				})
			}
		})
	}
	callers.Wait()
	if got, want := calls.Load(), int64(8*20*5*4*3); got != want {
		t.Errorf("%d calls, want %d", got, want)
	}
}

func TestPanicReachesTheCaller(t *testing.T) {
	for _, threads := range []int{1, 4} {
		p := New(threads)
		for _, bad := range []int{0, 3, 99} {
			cause := panicOf(func() {
				p.Run(100, func(i int) {
					if i == bad {
						panic(fmt.Sprintf("index %d", i))
					}
				})
			})
			if want := fmt.Sprintf("index %d", bad); cause != want {
				t.Errorf("threads=%d: Run panicked with %v, want %q", threads, cause, want)
			}
			var after atomic.Int64
			p.Run(100, func(int) { after.Add(1) })
			if after.Load() != 100 {
				t.Errorf("threads=%d: %d calls after a panic, want 100", threads, after.Load())
			}
		}
		p.Close()
	}
}

// TestPanicOnAWorker: if f panics on a worker while the caller is inside f, Run panics with the
// same value on the caller's goroutine.
func TestPanicOnAWorker(t *testing.T) {
	p := New(2)
	defer p.Close()
	cause := panicOf(func() {
		var both sync.WaitGroup
		both.Add(2)
		p.Run(2, func(i int) {
			both.Done()
			both.Wait() // two goroutines are inside now, one of them a worker
			panic("both fail, one is told")
		})
	})
	if cause != "both fail, one is told" {
		t.Errorf("Run panicked with %v", cause)
	}
}

// TestGoexitOnAWorkerIsReported: if f ends a worker's goroutine with runtime.Goexit, Run panics. It
// neither hangs nor returns as if all indices were done.
func TestGoexitOnAWorkerIsReported(t *testing.T) {
	p := New(2)
	defer p.Close()
	caller := make(chan any, 1)
	go func() {
		caller <- panicOf(func() {
			self := goroutineID()
			var both sync.WaitGroup
			both.Add(2)
			p.Run(2, func(int) {
				both.Done()
				both.Wait()
				if goroutineID() != self {
					runtime.Goexit()
				}
			})
		})
	}()
	if cause := <-caller; cause != errGoexit {
		t.Errorf("Run panicked with %v, want %v", cause, errGoexit)
	}
	var calls atomic.Int64
	p.Run(10, func(int) { calls.Add(1) })
	if calls.Load() != 10 {
		t.Errorf("%d calls after the worker was lost, want 10", calls.Load())
	}
}

func TestRunAfterClose(t *testing.T) {
	p := New(4)
	p.Close()
	p.Close()
	sum := 0 // unsynchronised: everything runs on this goroutine
	p.Run(10, func(i int) { sum += i })
	if sum != 45 {
		t.Errorf("sum %d, want 45", sum)
	}
}

func TestCloseDuringRun(t *testing.T) {
	for range 50 {
		p := New(4)
		var calls atomic.Int64
		closed := make(chan struct{})
		p.Run(64, func(i int) {
			if i == 5 {
				go func() {
					p.Close()
					close(closed)
				}()
			}
			calls.Add(1)
		})
		<-closed
		if calls.Load() != 64 {
			t.Fatalf("%d calls, want 64", calls.Load())
		}
	}
}

func TestRunDoesNotAllocate(t *testing.T) {
	p := New(2)
	defer p.Close()
	f := func(int) {}
	p.Run(8, f)
	if got := testing.AllocsPerRun(200, func() { p.Run(8, f) }); got >= 1 {
		t.Errorf("%v allocations a call of Run, want 0", got)
	}
}

func BenchmarkRun(b *testing.B) {
	p := New(0)
	defer p.Close()
	f := func(int) {}
	for b.Loop() {
		p.Run(p.Threads(), f)
	}
}

// panicOf calls f and returns the value of its panic; nil: no panic.
func panicOf(f func()) (cause any) {
	defer func() { cause = recover() }()
	f()
	return nil
}

// goroutineID returns the number of the current goroutine, which the first line of its stack names.
func goroutineID() string {
	buf := make([]byte, 64)
	buf = buf[:runtime.Stack(buf, false)]
	var id int
	if _, err := fmt.Sscanf(string(buf), "goroutine %d ", &id); err != nil {
		panic(err)
	}
	return fmt.Sprint(id)
}
