// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"slices"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// requirements is what a message asks that others don't: of TLS (RFC 8689), or another
// host than the first, which can't take it. It then travels by itself.
type requirements struct {
	job *job
	// requireTLS: the host proves who it is and announces REQUIRETLS.
	requireTLS bool
	incapable  bool           // a host was there that can't take it: an answer, whatever is wrong with others
	rejection  *queue.Outcome // why a host may not have it
	mayRetry   bool           // another host may yet be there for it
}

// needsSeparate reports whether a message can't go with the others.
func (s *deliverySession) needsSeparate(j *job) bool {
	return j.tx.Mail.RequireTLS || j.tx.Mail.OptionalTLS && s.hasTLSPolicy
}

// sendSeparate sends what can't go with the others, each by itself.
func (s *deliverySession) sendSeparate() {
	for len(s.separate) > 0 && s.ctx.Err() == nil {
		j := s.separate[0]
		s.separate = s.separate[1:]
		t := &deliverySession{agent: s.agent, ctx: s.ctx, queueSession: s.queueSession, requirements: &requirements{job: j, requireTLS: j.tx.Mail.RequireTLS}, pending: []*job{j}, exhausted: true, buf: s.buf}
		hosts := s.agent.opts.Router.Hosts
		if j.tx.Mail.OptionalTLS && !t.requirements.requireTLS { // no policy of the destination counts
			hosts = s.agent.opts.Router.HostsWithoutPolicy
		}
		plan, err := hosts(s.ctx, s.queueSession.Destination())
		if err != nil {
			t.handleRouteError(err)
			continue
		}
		if t.requirements.requireTLS {
			for i, h := range plan.Hosts {
				plan.Hosts[i] = s.agent.opts.Router.RequireVerifiedTLS(h, "REQUIRETLS")
			}
		}
		t.sendByPlan(plan)
	}
}

// lacksRequireTLS reports whether a host has TLS and does not promise it of those
// that come after.
func (n *requirements) lacksRequireTLS(r *smtpclient.Result) bool {
	return n != nil && n.requireTLS && slices.ContainsFunc(r.Outcomes, func(o smtpclient.Outcome) bool { return o.Local && o.Reply.Enhanced == "5.7.30" })
}

// hostIncapable reports whether a host lacks what the whole message needs, or says that
// it is too large for it. Another of the domain's may take it (RFC 6531 §3.2).
func hostIncapable(r *smtpclient.Result) bool {
	return !slices.ContainsFunc(r.Outcomes, func(o smtpclient.Outcome) bool {
		return !o.Local || o.Class != smtpclient.Permanent || !slices.Contains([]string{"5.3.4", "5.6.3", "5.6.7"}, o.Reply.Enhanced)
	})
}

// recordRejection notes why a host may not have the message.
func (n *requirements) recordRejection(o queue.Outcome, unfit bool) {
	if n != nil {
		n.rejection, n.incapable = &o, n.incapable || unfit
	}
}

// recordDialFailure notes a failure to have a conversation.
func (n *requirements) recordDialFailure(err *smtpclient.DialError, o queue.Outcome) {
	switch {
	case n == nil:
	case n.requireTLS && err.Reply.Code/100 != 4 && !err.ConnectionFailed() && (err.Stage == smtpclient.StageStartTLS || err.Stage == smtpclient.StageHandshake):
		o.Enhanced = "5.7.10" // RFC 8689 §4.2.1: encryption needed
		n.recordRejection(o, false)
	default:
		n.mayRetry = true
	}
}

// recordBreak notes that a conversation came to nothing.
func (n *requirements) recordBreak() {
	if n != nil {
		n.mayRetry = true
	}
}

// finish settles the message when no host was left that could have it. It bounces
// once every host has been there and may not have it (RFC 8689 §4.2.1).
func (n *requirements) finish(s *deliverySession, o queue.Outcome) {
	o.State = queue.Deferred
	if n.rejection != nil && (n.incapable || !n.mayRetry) {
		o = *n.rejection
		o.State = queue.Bounced
	}
	o.Transcript = n.job.transcript.String()
	if n.job.isPartial() {
		n.job.setRemaining(o)
		s.queueSession.Finish(n.job.tx, n.job.outcomes...)
		return
	}
	s.queueSession.Finish(n.job.tx, o)
}

// hasTLSPolicy reports whether the destination has a policy that a message may
// overrule.
func hasTLSPolicy(p route.Plan) bool {
	return slices.ContainsFunc(p.Hosts, func(h route.Host) bool { return h.TLSRequiredBy != "" }) || len(p.Notes) > 0
}
