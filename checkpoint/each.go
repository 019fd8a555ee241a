package checkpoint

import (
	"runtime"
	"sync"
)

// each calls f(0) … f(n-1) on as many goroutines as there are processors and
// returns the error of the least index that failed. After an error no further
// index is begun.
func each(n int, f func(i int) error) error {
	var (
		mu     sync.Mutex
		next   int
		failed = n
		first  error
		wg     sync.WaitGroup
	)
	claim := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if first != nil || next >= n {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i, ok := claim(); ok; i, ok = claim() {
				if err := f(i); err != nil {
					mu.Lock()
					if i < failed {
						failed, first = i, err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return first
}
