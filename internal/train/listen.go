package train

import "mt/internal/watch"

// listen takes the port of the dashboard, if there is to be one: an address that cannot
// be had is an error before anything takes time. For a plan on paper the
// address is only read.
func (j *opening) listen() (err error) {
	key := j.c.Dashboard
	if key == "" {
		return nil
	}
	if key != "auto" {
		if j.pageAt, err = watch.ParseAddress(key); err != nil {
			return j.c.Errorf("dashboard", "dashboard: %w", err)
		}
	}
	if j.a.Paper {
		return nil
	}
	l, note, err := watch.Listen(j.pageAt)
	if err != nil {
		return j.c.Errorf("dashboard", "dashboard: %w", err)
	}
	if note != "" {
		j.note("%s", note)
	}
	j.page = l
	j.closers.add(func() { _ = l.Close() }) // it may be closed already
	return nil
}
