// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// handleRouteError reports the outcome for a destination that has no route.
func (s *deliverySession) handleRouteError(err error) {
	var why *route.Error
	if !errors.As(err, &why) { // the context has ended
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

// requeuePending handles a host that refuses further connections while other sessions are connected
// to it. It returns the untried jobs to the queue, for those sessions to send, and the session
// tries the host again for a slot. It reports whether to do that.
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

// pauseDestination tells the queue that the destination's hosts accept no mail for now.
func (s *deliverySession) pauseDestination() {
	o := queue.Outcome{Code: 451, Enhanced: "4.4.5", Stage: "pace", Reply: "slowed: " + s.rateLimit.reason, Via: s.via}
	if s.requirements != nil {
		o.RetryAfter = s.rateLimit.retryAt.Sub(s.agent.opts.Now())
		s.requirements.rejection = nil // no host rejected it: a limited host was never asked
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
	s.separate = nil // PauseDestination postpones them too
}

// deferPartial reports partly delivered jobs, so that no recipient gets the message twice. The
// queue defers unreported transactions itself.
func (s *deliverySession) deferPartial() {
	for _, j := range s.pending {
		if j.isPartial() {
			j.setRemaining(queue.Outcome{State: queue.Deferred, Enhanced: "4.3.0", Stage: "local", Reply: "the attempt was broken off"})
			s.queueSession.Finish(j.tx, j.outcomes...)
		}
	}
}

// failDestination tells the queue that the destination is unreachable. For a partly delivered job
// it defers the remaining recipients.
func (s *deliverySession) failDestination(o queue.Outcome) {
	o.State = queue.Deferred
	if s.requirements != nil {
		s.requirements.finish(s, o)
		return
	}
	o.Reply = smtpclient.RedactAddresses(smtpclient.Stage(o.Stage), o.Reply) // other messages' senders read it
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
