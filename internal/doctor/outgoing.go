// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/spam"
)

// Outgoing checks delivery to other servers.
type Outgoing struct {
	Router   *route.Router
	EHLOName string // our own host name, for EHLO
}

// stepTimeout is the limit for each step with one host.
const stepTimeout = 4 * time.Second

// CheckRelay checks that the smart host accepts our session. It doesn't sign in.
func (o Outgoing) CheckRelay(ctx context.Context, r *Report) {
	s := o.Router.SmartHost
	where := fmt.Sprintf("%s:%d", s.Host, s.Port)
	do := "Look whether the relay's address, port and kind of TLS are right (--relay), and whether a firewall lets this machine reach it: no mail leaves meanwhile."
	ext, facts, err := o.probe(ctx, "")
	switch {
	case err != nil:
		r.Fail(do, "%s: %v", where, err)
	case s.Auth != nil && len(ext.Auth) == 0:
		r.Fail("Use its port for submission, mostly 587 or 465, or leave the password out.", "%s offers no way to sign in, and --relay has a password", where)
	case facts.TLS == "":
		r.Warn("Use smtps, or a port with STARTTLS, unless the relay is on a network of yours.", "%s answers, without TLS: mail goes there in clear", where)
	default:
		r.OK("%s answers, with %s", where, facts.TLS)
	}
}

// CheckProbe checks whether mail could be delivered to a domain's own hosts.
func (o Outgoing) CheckProbe(domain string) func(context.Context, *Report) {
	return func(ctx context.Context, r *Report) {
		_, facts, err := o.probe(ctx, domain)
		switch {
		case isRouteError(err):
			r.Fail("Probe a domain that takes mail, or see what is said of the resolver.", "%s: %v", domain, err)
		case err != nil:
			r.Fail("Ask the hoster whether outgoing port 25 is blocked, as it is at many; if so use a smart host (--relay).", "no host of %s could be reached: %v", domain, err)
		default:
			r.OK("%s [%s] greets, with %s", facts.Host, facts.Addr.Addr(), cmp.Or(facts.TLS, "no TLS"))
		}
	}
}

func isRouteError(err error) bool {
	var e *route.Error
	return errors.As(err, &e)
}

// probe runs an SMTP session up to the first MAIL with one of a domain's hosts, without signing in.
func (o Outgoing) probe(ctx context.Context, domain string) (smtpclient.Extensions, smtpclient.Peer, error) {
	plan, err := o.Router.Hosts(ctx, domain)
	if err != nil {
		return smtpclient.Extensions{}, smtpclient.Peer{}, err
	}
	var troubles []string
	for _, h := range plan.Hosts {
		for _, addr := range h.Addrs {
			dial := smtpclient.Options{
				Addr: addr, Host: h.Name, LocalName: o.EHLOName, TLS: h.TLS, Verify: h.Verify, TLSConfig: h.TLSConfig,
				PolicyKey: h.PolicyKey, TLSRequiredBy: h.TLSRequiredBy, TestingPolicy: h.TestingPolicy,
				Timeouts: smtpclient.Timeouts{Connect: stepTimeout, Greeting: stepTimeout, Command: stepTimeout, Handshake: stepTimeout, Quit: time.Second},
			}
			c, err := smtpclient.Dial(ctx, dial)
			var failed *smtpclient.DialError
			if errors.As(err, &failed) && failed.Class == smtpclient.RetryPlaintext { // as deliveries do
				dial.TLS = smtpclient.TLSNever
				c, err = smtpclient.Dial(ctx, dial)
			}
			if err != nil {
				troubles = append(troubles, err.Error())
				continue
			}
			ext, facts := c.Extensions(), c.Peer()
			_ = c.Close() // the result doesn't matter
			return ext, facts, nil
		}
	}
	return smtpclient.Extensions{}, smtpclient.Peer{}, errors.New(strings.Join(troubles, "; "))
}

// CheckRspamd checks whether rspamd responds. closed means that mail is not accepted without it.
func CheckRspamd(s *spam.Rspamd, closed bool) func(context.Context, *Report) {
	return func(ctx context.Context, r *Report) { reportPing(r, s.Ping(ctx), "--rspamd", closed) }
}

// CheckClamd is CheckRspamd for clamd.
func CheckClamd(s *spam.Clamav, closed bool) func(context.Context, *Report) {
	return func(ctx context.Context, r *Report) { reportPing(r, s.Ping(ctx), "--clamav", closed) }
}

func reportPing(r *Report, err error, setting string, closed bool) {
	do := "Look whether it runs, and whether " + setting + " is right."
	switch {
	case err == nil:
		r.OK("answers")
	case closed:
		r.Fail(do, "does not answer, and with --spam-fail closed no mail from outside is taken in: %v", err)
	default:
		r.Warn(do, "does not answer; mail from outside is taken in without it: %v", err)
	}
}
