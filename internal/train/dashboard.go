package train

import (
	"fmt"
	"net"

	"mt/internal/watch"
)

// dashboard is a server over the files of a run, which End closes.
type dashboard struct {
	deaf
	server *watch.Server
}

// serve shows the run in dir to whoever has its URL, until the run's end. page is the port, and at its address.
func serve(dir string, page net.Listener, at watch.Address, note func(string)) *dashboard {
	return &dashboard{server: watch.Serve(page, watch.Options{Dirs: []string{dir}, Within: true, Address: at,
		Warn: func(err error) { note(fmt.Sprintf("the dashboard is gone, and the run goes on: %v", err)) }})}
}

// End implements Observer.
func (d *dashboard) End(error) { d.server.Close() }
