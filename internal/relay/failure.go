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
		s.agent.opts.Log.Info("no route to destination", "destination", s.queueSession.Destination(), "error", err)
		s.failDestination(o, nil)
		return
	}
	for c := s.queueSession.Next(); c != nil; c = s.queueSession.Next() {
		s.queueSession.Finish(c, o)
	}
}

// requeuePending handles a host that refuses further connections while other sessions are connected
// to it. It returns the untried jobs to the queue, for those sessions to send. The session then
// tries the host again for a slot.
func (s *deliverySession) requeuePending(o queue.Outcome) {
	o.State = queue.Queued
	s.pending = slices.DeleteFunc(s.pending, func(j *job) bool {
		if j.isPartial() {
			return false
		}
		s.finish(j, o)
		return true
	})
}

// pauseDestination tells the queue that the destination's hosts accept no mail for now.
func (s *deliverySession) pauseDestination(limit *rateLimitError) {
	o := queue.Outcome{Code: 451, Enhanced: "4.4.5", Stage: "pace", Reply: "slowed: " + limit.reason, Via: s.via}
	if s.requirements != nil {
		o.RetryAfter = limit.retryAt.Sub(s.agent.opts.Now())
		s.requirements.rejection = nil // no host rejected it: a limited host was never asked
		s.requirements.finish(s, o)
		return
	}
	for _, j := range s.pending {
		if j.isPartial() {
			o := o
			o.State, o.RetryAfter = queue.Deferred, limit.retryAt.Sub(s.agent.opts.Now())
			s.finish(j, o)
		}
	}
	s.queueSession.PauseDestination(limit.retryAt, o)
	s.separate = nil // PauseDestination postpones them too
}

// deferPartial reports partly delivered jobs, so that no recipient gets the message twice. The
// queue defers unreported transactions itself.
func (s *deliverySession) deferPartial() {
	for _, j := range s.pending {
		if j.isPartial() {
			s.finish(j, queue.Outcome{State: queue.Deferred, Enhanced: "4.3.0", Stage: "local", Reply: "the attempt was broken off"})
		}
	}
}

// failDestination tells the queue that the destination is unreachable. For a partly delivered job
// it defers the remaining recipients. failed is the job with the last broken transaction, or nil.
func (s *deliverySession) failDestination(o queue.Outcome, failed *job) {
	o.State = queue.Deferred
	if s.requirements != nil {
		s.requirements.finish(s, o)
		return
	}
	o.Reply = smtpclient.RedactAddresses(smtpclient.Stage(o.Stage), o.Reply) // other messages' senders read it
	first := failed
	for _, j := range s.pending {
		switch {
		case j.isPartial():
			s.finish(j, o)
		case first == nil:
			first = j
		default:
			back := o
			back.State = queue.Queued
			s.finish(j, back)
		}
	}
	if first == nil {
		if first = s.fetchJob(); first == nil {
			return
		}
	}
	first.setRemaining(o)
	s.queueSession.FailDestination(first.tx, first.outcomes...)
}
