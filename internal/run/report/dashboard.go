package report

import (
	"fmt"
	"net"

	"mt/internal/watch"
)

// Dashboard is a server over the files of a run, which End closes.
type Dashboard struct {
	deaf
	Server *watch.Server
}

// Serve shows the run in dir to whoever has its URL, until the run's end. page is the port, and at its address.
func Serve(dir string, page net.Listener, at watch.Address, note func(string)) *Dashboard {
	return &Dashboard{Server: watch.Serve(page, watch.Options{Dirs: []string{dir}, Within: true, Address: at,
		Warn: func(err error) { note(fmt.Sprintf("the dashboard is gone, and the run goes on: %v", err)) }})}
}

// End implements Observer.
func (d *Dashboard) End(error) { d.Server.Close() }
