// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// unroutable reports what waits for a destination that has no way.
func (s *shift) unroutable(err error) {
	var why *route.Error
	if !errors.As(err, &why) { // ctx has ended
		return
	}
	o := queue.Outcome{State: queue.Bounced, Code: why.Code, Enhanced: why.Enhanced, Reply: why.Reason, Stage: why.Stage}
	s.tell(why.Notes)
	s.demanding = why.Stage == "policy"
	if n := s.needs; n != nil {
		if why.Permanent {
			n.refused(o, false)
		}
		n.end(s, o)
		return
	}
	if !why.Permanent {
		s.c.o.Log.Info("a destination has no way", "destination", s.run.Destination(), "error", err)
		s.giveUp(o)
		return
	}
	for c := s.run.Next(); c != nil; c = s.run.Next() {
		s.run.Done(c, o)
	}
}

// yield is for a host that takes no more connections while it talks with other
// runs: those send what this one had, and this one tries again, for a place
// among them. It reports whether to.
func (s *shift) yield(o queue.Outcome) bool {
	if !s.company {
		return false
	}
	s.company = false
	o.State = queue.Queued
	s.pending = slices.DeleteFunc(s.pending, func(j *job) bool {
		if j.partial() {
			return false
		}
		o.Transcript = j.trail.String()
		s.run.Done(j.c, o)
		return true
	})
	return true
}

// pause tells the queue that the destination's hosts take nothing now.
func (s *shift) pause() {
	o := queue.Outcome{Code: 451, Enhanced: "4.4.5", Stage: "pace", Reply: "slowed: " + s.rests.why, Via: s.via}
	if s.needs != nil {
		o.Retry = s.rests.until.Sub(s.c.o.Now())
		s.needs.refusal = nil // no host's, as one was not asked
		s.needs.end(s, o)
		return
	}
	for _, j := range s.pending {
		if j.partial() {
			o := o
			o.State, o.Retry = queue.Deferred, s.rests.until.Sub(s.c.o.Now())
			j.rest(o)
			s.run.Done(j.c, j.outcomes...)
		}
	}
	s.run.Pause(s.rests.until, o)
	s.aside = nil // they are put off with the rest
}

// breakOff reports what a host has taken a part of, so that it does not get it
// again; the queue defers what is not reported.
func (s *shift) breakOff() {
	for _, j := range s.pending {
		if j.partial() {
			j.rest(queue.Outcome{State: queue.Deferred, Enhanced: "4.3.0", Stage: "local", Reply: "the attempt was broken off"})
			s.run.Done(j.c, j.outcomes...)
		}
	}
}

// giveUp tells the queue that the destination can't be reached. Of what a host
// has taken a part, the rest is deferred.
func (s *shift) giveUp(o queue.Outcome) {
	o.State = queue.Deferred
	if s.needs != nil {
		s.needs.end(s, o)
		return
	}
	o.Reply = smtpclient.Anonymous(smtpclient.Stage(o.Stage), o.Reply) // for those who did not get it
	first := s.fallen
	for _, j := range s.pending {
		switch {
		case j.partial():
			j.rest(o)
			s.run.Done(j.c, j.outcomes...)
		case first == nil:
			first = j
		default:
			back := o
			back.State, back.Transcript = queue.Queued, j.trail.String()
			s.run.Done(j.c, back)
		}
	}
	if first == nil {
		if first = s.take(); first == nil {
			return
		}
	}
	if first == s.fallen {
		s.run.Trouble(first.c, first.outcomes...)
		return
	}
	o.Transcript = first.trail.String()
	s.run.Trouble(first.c, o)
}
