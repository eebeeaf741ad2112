// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"slices"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// needs is what a message asks that others don't: of TLS (RFC 8689), or another
// host than the first, which can't take it. It then travels by itself.
type needs struct {
	j *job
	// strict: the host proves who it is and announces REQUIRETLS.
	strict  bool
	unfit   bool           // a host was there that can't take it: an answer, whatever is wrong with others
	refusal *queue.Outcome // why a host may not have it
	soft    bool           // another host may yet be there for it
}

// special reports whether a message can't go with the others.
func (s *shift) special(j *job) bool {
	return j.c.Mail.RequireTLS || j.c.Mail.OptionalTLS && s.demanding
}

// sendAside sends what can't go with the others, each by itself.
func (s *shift) sendAside() {
	for len(s.aside) > 0 && s.ctx.Err() == nil {
		j := s.aside[0]
		s.aside = s.aside[1:]
		t := &shift{c: s.c, ctx: s.ctx, run: s.run, needs: &needs{j: j, strict: j.c.Mail.RequireTLS}, pending: []*job{j}, dry: true, buf: s.buf}
		hosts := s.c.o.Router.Hosts
		if j.c.Mail.OptionalTLS && !t.needs.strict { // no policy of the destination counts
			hosts = s.c.o.Router.HostsAnyhow
		}
		plan, err := hosts(s.ctx, s.run.Destination())
		if err != nil {
			t.unroutable(err)
			continue
		}
		if t.needs.strict {
			for i, h := range plan.Hosts {
				plan.Hosts[i] = s.c.o.Router.Proven(h, "REQUIRETLS")
			}
		}
		t.follow(plan)
	}
}

// unwilling reports whether a host has TLS and does not promise it of those
// that come after.
func (n *needs) unwilling(r *smtpclient.Result) bool {
	return n != nil && n.strict && slices.ContainsFunc(r.Outcomes, func(o smtpclient.Outcome) bool { return o.Local && o.Reply.Enhanced == "5.7.30" })
}

// unfit reports whether a host lacks what the whole message needs, or says that
// it is too large for it. Another of the domain's may take it (RFC 6531 §3.2).
func unfit(r *smtpclient.Result) bool {
	return !slices.ContainsFunc(r.Outcomes, func(o smtpclient.Outcome) bool {
		return !o.Local || o.Class != smtpclient.Permanent || !slices.Contains([]string{"5.3.4", "5.6.3", "5.6.7"}, o.Reply.Enhanced)
	})
}

// refused notes why a host may not have the message.
func (n *needs) refused(o queue.Outcome, unfit bool) {
	if n != nil {
		n.refusal, n.unfit = &o, n.unfit || unfit
	}
}

// failed notes a failure to have a conversation.
func (n *needs) failed(err *smtpclient.DialError, o queue.Outcome) {
	switch {
	case n == nil:
	case n.strict && err.Reply.Code/100 != 4 && !err.Broken() && (err.Stage == smtpclient.StageStartTLS || err.Stage == smtpclient.StageHandshake):
		o.Enhanced = "5.7.10" // RFC 8689 §4.2.1: encryption needed
		n.refused(o, false)
	default:
		n.soft = true
	}
}

// broke notes that a conversation came to nothing.
func (n *needs) broke() {
	if n != nil {
		n.soft = true
	}
}

// end settles the message when no host was left that could have it. It bounces
// once every host has been there and may not have it (RFC 8689 §4.2.1).
func (n *needs) end(s *shift, o queue.Outcome) {
	o.State = queue.Deferred
	if n.refusal != nil && (n.unfit || !n.soft) {
		o = *n.refusal
		o.State = queue.Bounced
	}
	o.Transcript = n.j.trail.String()
	if n.j.partial() {
		n.j.rest(o)
		s.run.Done(n.j.c, n.j.outcomes...)
		return
	}
	s.run.Done(n.j.c, o)
}

// demanding reports whether the destination has a policy that a message may
// overrule.
func demanding(p route.Plan) bool {
	return slices.ContainsFunc(p.Hosts, func(h route.Host) bool { return h.Demand != "" }) || len(p.Notes) > 0
}
