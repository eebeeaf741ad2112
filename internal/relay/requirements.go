// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"slices"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// requirements are the special requirements of a message: REQUIRETLS (RFC 8689), no TLS policy, or
// a host other than the first, which can't accept it. The message is then sent by itself.
type requirements struct {
	job *job
	// requireTLS is set if the host must prove its identity and announce REQUIRETLS.
	requireTLS bool
	incapable  bool           // whether a host answered that can't accept it; this decides even if others failed
	rejection  *queue.Outcome // why a host can't get the message; nil: none yet
	mayRetry   bool           // whether another host may accept it later
}

// needsSeparate reports whether a message must be sent by itself.
func (s *deliverySession) needsSeparate(j *job) bool {
	return j.tx.Mail.RequireTLS || j.tx.Mail.OptionalTLS && s.hasTLSPolicy
}

// sendSeparate sends the messages that must be sent by themselves, one after the other.
func (s *deliverySession) sendSeparate() {
	for len(s.separate) > 0 && s.ctx.Err() == nil {
		j := s.separate[0]
		s.separate = s.separate[1:]
		t := &deliverySession{agent: s.agent, ctx: s.ctx, queueSession: s.queueSession, requirements: &requirements{job: j, requireTLS: j.tx.Mail.RequireTLS}, pending: []*job{j}, exhausted: true, buf: s.buf}
		hosts := s.agent.opts.Router.Hosts
		if j.tx.Mail.OptionalTLS && !t.requirements.requireTLS { // ignore the destination's policies
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

// lacksRequireTLS reports whether a host has TLS but does not announce REQUIRETLS, which the
// message needs.
func (n *requirements) lacksRequireTLS(r *smtpclient.Result) bool {
	return n != nil && n.requireTLS && slices.ContainsFunc(r.Outcomes, func(o smtpclient.Outcome) bool { return o.Local && o.Reply.Enhanced == "5.7.30" })
}

// hostIncapable reports whether a host lacks an extension that the whole message needs, or says
// that the message is too large. Another of the domain's hosts may accept it (RFC 6531 §3.2).
func hostIncapable(r *smtpclient.Result) bool {
	return !slices.ContainsFunc(r.Outcomes, func(o smtpclient.Outcome) bool {
		return !o.Local || o.Class != smtpclient.Permanent || !slices.Contains([]string{"5.3.4", "5.6.3", "5.6.7"}, o.Reply.Enhanced)
	})
}

// recordRejection records why a host can't get the message.
func (n *requirements) recordRejection(o queue.Outcome, unfit bool) {
	if n != nil {
		n.rejection, n.incapable = &o, n.incapable || unfit
	}
}

// recordDialFailure records a failed connection.
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

// recordBreak records that an SMTP session broke.
func (n *requirements) recordBreak() {
	if n != nil {
		n.mayRetry = true
	}
}

// finish reports the message's outcome when no host is left to try. The message bounces only if
// every host answered and none can get it (RFC 8689 §4.2.1).
func (n *requirements) finish(s *deliverySession, o queue.Outcome) {
	o.State = queue.Deferred
	if n.rejection != nil && (n.incapable || !n.mayRetry) {
		o = *n.rejection
		o.State = queue.Bounced
	}
	s.finish(n.job, o)
}

// hasTLSPolicy reports whether the destination has a policy that a message may override.
func hasTLSPolicy(p route.Plan) bool {
	return slices.ContainsFunc(p.Hosts, func(h route.Host) bool { return h.TLSRequiredBy != "" }) || len(p.Notes) > 0
}
