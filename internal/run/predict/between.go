package predict

import "mt/internal/run/open"

// The ways of what passes from one device to another.
const (
	directly    = "from device to device, where a slot waits for it"
	partly      = "from device to device between some of them, else through the host"
	throughHost = "through the host"
)

// betweenDevices says which way what passes from one device to another goes; empty where there is one, or
// where no device is here to ask.
func betweenDevices(in *open.Inputs) (string, error) {
	switch {
	case in.Lanes <= 1:
		return "", nil
	case !in.Config.PeerCopies:
		return throughHost, nil
	case in.Profile == nil && in.Config.Device == "cpu":
		return directly, nil
	}
	reaches := func(from, to int) (bool, error) { // as the rates say, and no device is asked
		return in.Profile.On(from).Link.Peer > 0 && in.Profile.On(to).Link.Peer > 0, nil
	}
	n := in.Lanes
	if in.Profile == nil {
		n = len(in.Devices)
		reaches = func(from, to int) (bool, error) { return in.Devices[from].Reach(in.Devices[to]) }
	}
	ways, pairs := 0, n*(n-1)
	for k := range n * n {
		from, to := k/n, k%n
		if from == to {
			continue
		}
		ok, err := reaches(from, to)
		if err != nil {
			return "", err
		}
		if ok {
			ways++
		}
	}
	switch {
	case pairs == 0:
		return "", nil
	case ways == 0:
		return throughHost, nil
	case ways < pairs:
		return partly, nil
	}
	return directly, nil
}
