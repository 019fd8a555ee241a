package open

import "mt/internal/watch"

// listen takes the port of the dashboard, if there is to be one: an address that cannot
// be had is an error before anything takes time. For a plan on paper the
// address is only read.
func (p *opening) listen() (err error) {
	key := p.Config.Dashboard
	if key == "" {
		return nil
	}
	if key != "auto" {
		if p.PageAt, err = watch.ParseAddress(key); err != nil {
			return p.Config.Errorf("dashboard", "dashboard: %w", err)
		}
	}
	if p.a.Paper {
		return nil
	}
	l, note, err := watch.Listen(p.PageAt)
	if err != nil {
		return p.Config.Errorf("dashboard", "dashboard: %w", err)
	}
	if note != "" {
		p.note("%s", note)
	}
	p.Page = l
	p.closers.Add(func() { _ = l.Close() }) // it may be closed already
	return nil
}
