package open

import "mt/internal/watch"

// listen takes the port of the dashboard, if there is to be one: an address that cannot
// be had is an error before anything takes time. For a plan on paper the
// address is only read.
func (j *opening) listen() (err error) {
	key := j.Config.Dashboard
	if key == "" {
		return nil
	}
	if key != "auto" {
		if j.PageAt, err = watch.ParseAddress(key); err != nil {
			return j.Config.Errorf("dashboard", "dashboard: %w", err)
		}
	}
	if j.a.Paper {
		return nil
	}
	l, note, err := watch.Listen(j.PageAt)
	if err != nil {
		return j.Config.Errorf("dashboard", "dashboard: %w", err)
	}
	if note != "" {
		j.note("%s", note)
	}
	j.Page = l
	j.closers.Add(func() { _ = l.Close() }) // it may be closed already
	return nil
}
