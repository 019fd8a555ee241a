package parallel

import (
	"slices"
	"sync"
	"testing"
)

// TestDrain: the reader gets each item once. Items that one goroutine has put keep their order.
func TestDrain(t *testing.T) {
	const putters, each = 4, 1000
	q := NewQueue[[2]int]()
	var got [putters][]int
	var reader, writers sync.WaitGroup
	reader.Go(func() { q.Drain(func(x [2]int) { got[x[0]] = append(got[x[0]], x[1]) }) })
	for p := range putters {
		writers.Go(func() {
			for i := range each {
				if !q.Put([2]int{p, i}) {
					t.Error("Put on an open queue fails")
				}
			}
		})
	}
	writers.Wait()
	q.Close()
	if q.Put([2]int{}) {
		t.Error("Put on a closed queue does not fail")
	}
	reader.Wait()
	for p, items := range got {
		if len(items) != each || !slices.IsSorted(items) {
			t.Errorf("of goroutine %d came %d items, want %d in order", p, len(items), each)
		}
	}
}

// TestEmptyAndWait: an item counts as present until the reader has finished with it and with all
// items that it took together with it.
func TestEmptyAndWait(t *testing.T) {
	q := NewQueue[func()]()
	if q.Wait(); !q.Empty() {
		t.Error("a new queue is not empty")
	}
	var reader sync.WaitGroup
	reader.Go(func() { q.Drain(func(f func()) { f() }) })
	for range 100 {
		done := 0
		begun, goOn := make(chan struct{}), make(chan struct{})
		q.Put(func() { close(begun); <-goOn; done++ })
		<-begun
		if q.Empty() {
			t.Error("empty while the reader is at work")
		}
		q.Put(func() { done++ })
		close(goOn)
		if q.Wait(); done != 2 || !q.Empty() { // Wait orders what the reader did before this
			t.Fatalf("after Wait %d of 2 items are done, empty is %v", done, q.Empty())
		}
	}
	q.Close()
	reader.Wait()
	if q.Wait(); !q.Empty() {
		t.Error("not empty after the reader has ended")
	}
}

// TestCloseKeepsItems: items that were put before Close are read, even if the reader starts later.
func TestCloseKeepsItems(t *testing.T) {
	q := NewQueue[int]()
	q.Put(1)
	q.Put(2)
	q.Close()
	if q.Empty() {
		t.Error("empty before anything was read")
	}
	var got []int
	q.Drain(func(x int) { got = append(got, x) })
	if !slices.Equal(got, []int{1, 2}) {
		t.Errorf("read %v, want [1 2]", got)
	}
}

// TestNoGrowth: the reader itself may put items. The memory of a queue that is never empty does not
// grow, as long as its number of items does not.
func TestNoGrowth(t *testing.T) {
	q := NewQueue[int]()
	q.Put(0)
	q.Put(1)
	var most int
	q.Drain(func(x int) {
		if x < 10_000 {
			q.Put(x + 2)
		} else {
			q.Close()
		}
		most = max(most, cap(q.items), cap(q.spare))
	})
	if most > 8 {
		t.Errorf("the buffers of a queue of 2 items have grown to %d", most)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	q := NewQueue[[4]int]()
	var reader sync.WaitGroup
	reader.Go(func() { q.Drain(func([4]int) {}) })
	if got := testing.AllocsPerRun(200, func() { q.Put([4]int{}); q.Wait() }); got > 0 {
		t.Errorf("%v allocations an item", got)
	}
	q.Close()
	reader.Wait()
}
