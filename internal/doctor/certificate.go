// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/x509"
	"errors"
	"io/fs"
	"time"

	"github.com/mailstead/mailstead/internal/cert"
)

// Certificate checks the certificate of the listeners.
type Certificate struct {
	Kind         string // acme, self-signed or files
	Pair         cert.FilePair
	Host         string
	Roots        *x509.CertPool // roots that clients trust; nil: the system's
	RunningSince time.Time      // start of the running service; zero: stopped
	Now          func() time.Time
}

// trustedFix is the fix for a certificate of an unknown authority.
const trustedFix = "Use --tls acme, which obtains one by itself, or --tls CERTIFICATE.pem,KEY.pem with one of an authority that all know."

const (
	// renewBefore is the minimum remaining validity of a certificate. ACME renews it a month before
	// it expires.
	renewBefore = 14 * 24 * time.Hour
	// acmeDelay is how long the first ACME order may take.
	acmeDelay = 10 * time.Minute
)

// Check checks that the certificate exists and is valid.
func (c Certificate) Check(_ context.Context, r *Report) {
	var renew string
	switch c.Kind {
	case "acme":
		renew = "The log of the service says why it was not obtained. The ports 80 or 443 must be reachable from the Internet under " + c.Host + "."
	case "self-signed":
		renew = "Start the service, or start it again: it makes a new one."
	default:
		renew = "Put a new one into " + c.Pair.CertFile + "; the service reads it within seconds."
	}
	leaf, behind, err := c.Pair.LoadChain()
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.Kind != "files" && (c.RunningSince.IsZero() || c.Kind == "acme" && c.Now().Sub(c.RunningSince) < acmeDelay):
		if c.Kind == "self-signed" {
			r.Warn(trustedFix, "not there yet; mailstead serve will make one that is self-signed, which mail programs and browsers refuse or warn of")
			return
		}
		r.Warn("Start the service; the ports 80 or 443 must be reachable from the Internet under "+c.Host+".", "there is none for %s yet; the service obtains it when it runs", c.Host)
		return
	case errors.Is(err, fs.ErrNotExist):
		r.Fail(renew, "there is none for %s: %v", c.Host, err)
		return
	case err != nil:
		r.Fail(FixFor(err, renew), "%v", err)
		return
	}
	c.report(r, renew, leaf, behind)
}

func (c Certificate) report(r *Report, renew string, leaf *x509.Certificate, behind *x509.CertPool) {
	now := c.Now()
	if c.Kind == "self-signed" && c.RunningSince.IsZero() && (leaf.NotAfter.Sub(now) < renewBefore || leaf.VerifyHostname(c.Host) != nil) {
		r.Warn(trustedFix, "self-signed; mailstead serve will make a new one, which mail programs and browsers refuse or warn of")
		return
	}
	left, until := leaf.NotAfter.Sub(now), leaf.NotAfter.UTC().Format(time.DateTime+"Z")
	if now.Before(leaf.NotBefore) {
		r.Fail("Look at the clock of this machine.", "it is valid from %s on only", leaf.NotBefore.UTC().Format(time.DateTime+"Z"))
	}
	if err := leaf.VerifyHostname(c.Host); err != nil {
		r.Fail(renew, "it is not for %s: %v", c.Host, err)
	}
	switch {
	case left <= 0:
		r.Fail(renew, "it expired at %s", until)
		return
	case left < renewBefore:
		r.Warn(renew, "it expires at %s, in %s", until, formatDuration(left))
	}
	if c.Kind == "files" {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: c.Roots, Intermediates: behind, CurrentTime: now}); err != nil {
			r.Warn("Put the whole chain into "+c.Pair.CertFile+", from an authority that mail programs know, unless yours know another.", "who doesn't know its authority won't take it: %v", err)
		}
	}
	switch {
	case r.worst() != OK:
	case c.Kind == "self-signed":
		r.Warn(trustedFix, "self-signed, for %s until %s: mail programs and browsers refuse it or warn of it", c.Host, until)
	default:
		r.OK("%s, for %s until %s", c.Kind, c.Host, until)
	}
}
