package train

// The ways of what passes from one device to another.
const (
	directly    = "from device to device, where a slot waits for it"
	partly      = "from device to device between some of them, else through the host"
	throughHost = "through the host"
)

// passing says which way what passes from one device to another goes; empty where there is one, or
// where no device is here to ask.
func passing(j *Inputs) (string, error) {
	switch {
	case j.lanes <= 1:
		return "", nil
	case !j.c.PeerCopies:
		return throughHost, nil
	case j.profile == nil && j.c.Device == "cpu":
		return directly, nil
	}
	reaches := func(from, to int) (bool, error) { // as the rates say, and no device is asked
		return j.profile.On(from).Link.Peer > 0 && j.profile.On(to).Link.Peer > 0, nil
	}
	n := j.lanes
	if j.profile == nil {
		n = len(j.devs)
		reaches = func(from, to int) (bool, error) { return j.devs[from].Reach(j.devs[to]) }
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
