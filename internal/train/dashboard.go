package train

import (
	"fmt"

	"mt/internal/watch"
)

// listen takes the port of the dashboard, if there is to be one: an address that cannot
// be had is an error before anything takes time. Where take is false the address is
// only read.
func (j *job) listen(take bool) (err error) {
	key := j.c.Dashboard
	if key == "" {
		return nil
	}
	if key != "auto" {
		if j.pageAt, err = watch.ParseAddress(key); err != nil {
			return j.c.Errorf("dashboard", "dashboard: %w", err)
		}
	}
	if !take {
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
	j.closers = append(j.closers, func() { _ = l.Close() }) // it may be closed already
	return nil
}

// serve shows the run to whoever has the address that it prints, until the run's end.
func (s *session) serve() {
	if s.page == nil {
		return
	}
	server := watch.Serve(s.page, watch.Options{Dirs: []string{s.c.OutputDir}, Within: true, Address: s.pageAt,
		Warn: func(err error) { s.late.add(fmt.Sprintf("the dashboard is gone, and the run goes on: %v", err)) }})
	s.closers = append(s.closers, server.Close)
	s.line.above("dashboard: " + server.URL())
	if f := s.hooks.serving; f != nil {
		f(server.URL(), s.page)
	}
}
