// SPDX-License-Identifier: Apache-2.0

package route

import (
	"crypto/tls"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

// policyCheck applies a domain's policies to its hosts, and collects the results.
type policyCheck struct {
	domain    string
	sts       *STSPolicy // nil: none
	notes     []string
	rejection *Error // reason of the last host that was rejected
}

// apply sets what a host must prove. It returns false if the host must not be used. Where DANE
// applies to the certificate, it alone decides (RFC 8461 §2).
func (d *policyCheck) apply(r *Router, h *Host, c *candidate) bool {
	if c.daneErr != nil {
		d.reject("4.7.5", "DANE: the TLSA records of "+h.Name+" could not be looked up", c.daneErr)
		return false
	}
	if c.dane != nil {
		h.TLS, h.TLSRequiredBy = smtpclient.TLSRequired, "DANE"
		if len(c.dane.records) > 0 {
			// VerifyConnection replaces the library's own check.
			h.TLSConfig = &tls.Config{InsecureSkipVerify: true, ServerName: c.dane.baseDomain, VerifyConnection: c.dane.verify}
			h.PolicyKey = c.dane.policyKey()
			return true
		}
		h.TLSRequiredBy = "DANE, with no TLSA record that can be used"
	}
	if d.sts == nil {
		return true
	}
	named := d.sts.Allows(h.Name)
	switch d.sts.Mode {
	case STSEnforce:
		if !named {
			d.reject("4.7.0", "MTA-STS policy of "+d.domain+": it does not name the host "+h.Name, nil)
			return false
		}
		h.TLS, h.Verify, h.TLSRequiredBy = smtpclient.TLSRequired, true, "MTA-STS policy of "+d.domain
		r.setRoots(h)
	case STSTesting:
		h.TestingPolicy = "MTA-STS policy of " + d.domain + " (testing)"
		if !named {
			d.notes = append(d.notes, h.TestingPolicy+": it does not name the host "+h.Name)
		}
		r.setRoots(h)
		h.PolicyKey += " " + h.TestingPolicy
	}
	return true
}

// RequireVerifiedTLS returns the host with TLS and a valid certificate required, whatever the
// domain's policies say. who names the requirement, such as "REQUIRETLS" (RFC 8689 §4.2.1).
func (r *Router) RequireVerifiedTLS(h Host, who string) Host {
	if h.TLS != smtpclient.TLSImplicit {
		h.TLS = smtpclient.TLSRequired
	}
	if h.Verify || h.TLSConfig != nil && h.TLSConfig.VerifyConnection != nil {
		return h
	}
	h.Verify, h.TLSRequiredBy, h.TestingPolicy = true, who, ""
	r.setRoots(&h)
	return h
}

// setRoots sets the certificate authorities that a host's certificate may come from.
func (r *Router) setRoots(h *Host) {
	if r.Roots == nil {
		return
	}
	h.TLSConfig = &tls.Config{RootCAs: r.Roots}
	h.PolicyKey = "roots"
}

func (d *policyCheck) reject(enhanced, reason string, cause error) {
	d.notes = append(d.notes, reason)
	d.rejection = &Error{Code: 451, Enhanced: enhanced, Stage: "policy", Reason: reason, Cause: cause, Notes: d.notes}
}
