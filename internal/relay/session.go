// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// deliverySession is the state of one queue session.
type deliverySession struct {
	agent        *Agent
	ctx          context.Context
	queueSession *queue.Session

	via         string
	policyNotes string // notes on the domain's policies, for each transcript
	targets     []target

	pending     []*job // jobs fetched but not finished
	exhausted   bool   // whether the queue has no more jobs
	brokenCount int    // number of transactions in a row that broke in the middle
	buf         []byte // buffer for reading messages

	requirements *requirements // requirements of the only job; nil: jobs without any
	separate     []*job        // jobs to send by themselves, after all others
	hasTLSPolicy bool          // whether the destination has a TLS policy
}

// Deliver sends the mail that waits for a destination to the best host that accepts it.
func (a *Agent) Deliver(ctx context.Context, r *queue.Session) {
	s := &deliverySession{agent: a, ctx: ctx, queueSession: r}
	plan, err := a.opts.Router.Hosts(ctx, r.Destination())
	if err != nil {
		s.handleRouteError(err)
	} else {
		s.hasTLSPolicy = hasTLSPolicy(plan)
		s.sendByPlan(plan)
	}
	s.sendSeparate()
}

// sendByPlan sends the pending mail to the hosts of a plan.
func (s *deliverySession) sendByPlan(plan route.Plan) {
	s.via = plan.Via
	s.addPolicyNotes(plan.Notes)
	for _, h := range plan.Hosts {
		if note := "* TLS is required: " + h.TLSRequiredBy + "\n"; h.TLSRequiredBy != "" && !strings.Contains(s.policyNotes, note) {
			s.policyNotes += note
		}
	}
	if s.requirements != nil {
		s.requirements.job.transcript.WriteString(s.policyNotes)
	}
	for _, h := range plan.Hosts {
		for _, a := range h.Addrs {
			s.targets = append(s.targets, target{host: h, addr: a})
		}
	}
	slices.SortStableFunc(s.targets, func(a, b target) int {
		return boolToInt(s.agent.hosts.recentlyFailed(a.key())) - boolToInt(s.agent.hosts.recentlyFailed(b.key()))
	})
	s.tryTargets()
}

// addPolicyNotes adds policy notes to the transcript of each delivery.
func (s *deliverySession) addPolicyNotes(notes []string) {
	for _, n := range notes {
		s.policyNotes += "* " + n + "\n"
	}
	if len(notes) > 0 {
		s.agent.opts.Log.Info("destination policies", "destination", s.queueSession.Destination(), "notes", notes)
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tryTargets tries one target after the other until nothing is pending.
func (s *deliverySession) tryTargets() {
	var last queue.Outcome    // why the last target failed
	var limit *rateLimitError // earliest end of a limit among the limited targets
	busy := false             // whether a host refused us while it serves other sessions
	for i := 0; i < len(s.targets); {
		n := s.exchange(&s.targets[i])
		switch n.action {
		case stop:
			return
		case destinationFailed:
			s.failDestination(n.outcome, n.failed)
			return
		case tryNext:
			i++
			busy = busy || n.busy
			if n.limit == nil {
				last = n.outcome
			} else if limit == nil || n.limit.retryAt.Before(limit.retryAt) {
				limit = n.limit
			}
		}
		if i == len(s.targets) && busy {
			s.requeuePending(last)
			i, busy = 0, false
		}
	}
	if limit != nil {
		s.pauseDestination(limit)
		return
	}
	s.failDestination(last, nil)
}

// ensurePending reports whether there is anything to send; it fetches a job if none is pending.
func (s *deliverySession) ensurePending() bool {
	if len(s.pending) > 0 {
		return true
	}
	j := s.fetchJob()
	if j != nil {
		s.pending = append(s.pending, j)
	}
	return j != nil
}

// fetchJob fetches the next job from the queue. It returns nil if there is none.
func (s *deliverySession) fetchJob() *job {
	for s.requirements == nil {
		c := s.queueSession.Next()
		if c == nil {
			break
		}
		j := newJob(c)
		if s.needsSeparate(j) {
			s.separate = append(s.separate, j)
			continue
		}
		j.transcript.WriteString(s.policyNotes)
		return j
	}
	s.exhausted = true
	return nil
}

// finish reports a job to the queue, with the same outcome for all pending recipients.
func (s *deliverySession) finish(j *job, o queue.Outcome) {
	j.setRemaining(o)
	s.queueSession.Finish(j.tx, j.outcomes...)
}

// requeue returns a job to the queue, untried, because another node may have taken it over.
func (s *deliverySession) requeue(j *job) { s.finish(j, queue.Outcome{State: queue.Queued}) }

// logRelayFailure logs smart host failures that a retry can't fix: it rejects the login or
// STARTTLS, or its certificate is wrong.
func (s *deliverySession) logRelayFailure(err *smtpclient.DialError) {
	if s.via == "" {
		return
	}
	switch err.Stage {
	case smtpclient.StageAuth, smtpclient.StageHandshake, smtpclient.StageStartTLS:
		s.agent.opts.Log.Error("smart host accepts no mail from us", "host", err.Peer.Host, "stage", string(err.Stage), "reply", err.Reply.String())
	}
}

// addTranscript adds the transcript of a failed connection to all pending jobs.
func (s *deliverySession) addTranscript(transcript string) {
	for _, j := range s.pending {
		j.transcript.WriteString(transcript)
	}
}
