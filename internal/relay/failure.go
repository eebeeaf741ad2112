// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// handleRouteError reports what waits for a destination that has no way.
func (s *deliverySession) handleRouteError(err error) {
	var why *route.Error
	if !errors.As(err, &why) { // ctx has ended
		return
	}
	o := queue.Outcome{State: queue.Bounced, Code: why.Code, Enhanced: why.Enhanced, Reply: why.Reason, Stage: why.Stage}
	s.addPolicyNotes(why.Notes)
	s.hasTLSPolicy = why.Stage == "policy"
	if n := s.requirements; n != nil {
		if why.Permanent {
			n.recordRejection(o, false)
		}
		n.finish(s, o)
		return
	}
	if !why.Permanent {
		s.agent.opts.Log.Info("a destination has no way", "destination", s.queueSession.Destination(), "error", err)
		s.failDestination(o)
		return
	}
	for c := s.queueSession.Next(); c != nil; c = s.queueSession.Next() {
		s.queueSession.Finish(c, o)
	}
}

// requeuePending is for a host that takes no more connections while it talks with other
// runs: those send what this one had, and this one tries again, for a place
// among them. It reports whether to.
func (s *deliverySession) requeuePending(o queue.Outcome) bool {
	if !s.busyRefusal {
		return false
	}
	s.busyRefusal = false
	o.State = queue.Queued
	s.pending = slices.DeleteFunc(s.pending, func(j *job) bool {
		if j.isPartial() {
			return false
		}
		o.Transcript = j.transcript.String()
		s.queueSession.Finish(j.tx, o)
		return true
	})
	return true
}

// pauseDestination tells the queue that the destination's hosts take nothing now.
func (s *deliverySession) pauseDestination() {
	o := queue.Outcome{Code: 451, Enhanced: "4.4.5", Stage: "pace", Reply: "slowed: " + s.rateLimit.reason, Via: s.via}
	if s.requirements != nil {
		o.RetryAfter = s.rateLimit.retryAt.Sub(s.agent.opts.Now())
		s.requirements.rejection = nil // no host's, as one was not asked
		s.requirements.finish(s, o)
		return
	}
	for _, j := range s.pending {
		if j.isPartial() {
			o := o
			o.State, o.RetryAfter = queue.Deferred, s.rateLimit.retryAt.Sub(s.agent.opts.Now())
			j.setRemaining(o)
			s.queueSession.Finish(j.tx, j.outcomes...)
		}
	}
	s.queueSession.PauseDestination(s.rateLimit.retryAt, o)
	s.separate = nil // they are put off with the rest
}

// deferPartial reports what a host has taken a part of, so that it does not get it
// again; the queue defers what is not reported.
func (s *deliverySession) deferPartial() {
	for _, j := range s.pending {
		if j.isPartial() {
			j.setRemaining(queue.Outcome{State: queue.Deferred, Enhanced: "4.3.0", Stage: "local", Reply: "the attempt was broken off"})
			s.queueSession.Finish(j.tx, j.outcomes...)
		}
	}
}

// failDestination tells the queue that the destination can't be reached. Of what a host
// has taken a part, the rest is deferred.
func (s *deliverySession) failDestination(o queue.Outcome) {
	o.State = queue.Deferred
	if s.requirements != nil {
		s.requirements.finish(s, o)
		return
	}
	o.Reply = smtpclient.RedactAddresses(smtpclient.Stage(o.Stage), o.Reply) // for those who did not get it
	first := s.failedJob
	for _, j := range s.pending {
		switch {
		case j.isPartial():
			j.setRemaining(o)
			s.queueSession.Finish(j.tx, j.outcomes...)
		case first == nil:
			first = j
		default:
			back := o
			back.State, back.Transcript = queue.Queued, j.transcript.String()
			s.queueSession.Finish(j.tx, back)
		}
	}
	if first == nil {
		if first = s.fetchJob(); first == nil {
			return
		}
	}
	if first == s.failedJob {
		s.queueSession.FailDestination(first.tx, first.outcomes...)
		return
	}
	o.Transcript = first.transcript.String()
	s.queueSession.FailDestination(first.tx, o)
}
