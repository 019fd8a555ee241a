package actors

import "fmt"

// core is the pure part of an actor: it answers a message with effects, in order,
// and touches nothing else.
type core interface {
	step(msg any) []effect
}

// effect is what a core wants to happen: a send or a work.
type effect interface{ effect() }

// send puts msg into the mailbox of to.
type send struct {
	to  address
	msg any
}

func (send) effect() {}

func (s send) String() string { return fmt.Sprintf("→ %s %T%+v", s.to, s.msg, s.msg) }

// work is something for the process to do. When it is complete, done is sent; a
// failing work sends Failed instead.
type work struct {
	do   any
	done []send
}

func (work) effect() {}

// finding is a message that tells what a work has found out. A core makes it without
// the result, which with adds when the work is complete.
type finding interface {
	with(result any) any
}

// completed are the sends of a work that found result.
func (w work) completed(result any) []send {
	out := make([]send, len(w.done))
	for i, s := range w.done {
		if f, ok := s.msg.(finding); ok {
			s.msg = f.with(result)
		}
		out[i] = s
	}
	return out
}
