// SPDX-License-Identifier: Apache-2.0

package route

import (
	"crypto/tls"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

// demands are what a domain's policies want of its hosts, and what came of
// that.
type demands struct {
	domain  string
	sts     *Policy // nil: none
	notes   []string
	refused *Error // why the last host that may not be used may not
}

// demand sets what a host must prove. It reports false if the host must not
// be used. Where DANE has a say it alone decides (RFC 8461 §2).
func (d *demands) demand(r *Router, h *Host, c *candidate) bool {
	if c.pinsErr != nil {
		d.refuse("4.7.5", "DANE: the TLSA records of "+h.Name+" could not be looked up", c.pinsErr)
		return false
	}
	if c.pins != nil {
		h.TLS, h.Demand = smtpclient.Required, "DANE"
		if len(c.pins.records) > 0 {
			// Our own check takes the place of the library's.
			h.TLSConfig = &tls.Config{InsecureSkipVerify: true, ServerName: c.pins.base, VerifyConnection: c.pins.check}
			h.Policy = c.pins.key()
			return true
		}
		h.Demand = "DANE, with no TLSA record that can be used"
	}
	if d.sts == nil {
		return true
	}
	named := d.sts.Allows(h.Name)
	switch d.sts.Mode {
	case Enforce:
		if !named {
			d.refuse("4.7.0", "MTA-STS policy of "+d.domain+": it does not name the host "+h.Name, nil)
			return false
		}
		h.TLS, h.Verify, h.Demand = smtpclient.Required, true, "MTA-STS policy of "+d.domain
		r.trust(h)
	case Testing:
		h.Audit = "MTA-STS policy of " + d.domain + " (testing)"
		if !named {
			d.notes = append(d.notes, h.Audit+": it does not name the host "+h.Name)
		}
		r.trust(h)
		h.Policy += " " + h.Audit
	}
	return true
}

// Proven is the host with a certificate that must be good, whatever the
// domain's policies say, because who demands it (RFC 8689 §4.2.1).
func (r *Router) Proven(h Host, who string) Host {
	if h.TLS != smtpclient.Implicit {
		h.TLS = smtpclient.Required
	}
	if h.Verify || h.TLSConfig != nil && h.TLSConfig.VerifyConnection != nil {
		return h
	}
	h.Verify, h.Demand, h.Audit = true, who, ""
	r.trust(&h)
	return h
}

// trust gives a host the authorities that its certificate may be from.
func (r *Router) trust(h *Host) {
	if r.Roots == nil {
		return
	}
	h.TLSConfig = &tls.Config{RootCAs: r.Roots}
	h.Policy = "roots"
}

func (d *demands) refuse(enhanced, reason string, cause error) {
	d.notes = append(d.notes, reason)
	d.refused = &Error{Code: 451, Enhanced: enhanced, Stage: "policy", Reason: reason, Cause: cause, Notes: d.notes}
}
