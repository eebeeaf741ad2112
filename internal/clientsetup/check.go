// SPDX-License-Identifier: Apache-2.0

package clientsetup

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

// EndpointChecker connects to the endpoints like a mail client, from this machine.
type EndpointChecker struct {
	dialer  net.Dialer
	service *Service
	roots   *x509.CertPool
	slots   chan struct{}
}

const (
	// checkTimeout is the limit for a whole check.
	checkTimeout = 30 * time.Second
	// maxChecks is the maximum number of concurrent checks; each opens a connection to each
	// endpoint.
	maxChecks = 8
)

// NewChecker returns a Checker that trusts roots and asks resolver. Nil means those of the system.
func NewChecker(s *Service, roots *x509.CertPool, resolver *net.Resolver) *EndpointChecker {
	return &EndpointChecker{dialer: net.Dialer{Resolver: resolver}, service: s, roots: roots, slots: make(chan struct{}, maxChecks)}
}

// Protocols of an endpoint.
const (
	IMAP = "IMAP"
	SMTP = "SMTP"
)

// CheckResult is the result for one endpoint.
type CheckResult struct {
	Protocol string // IMAP or SMTP
	Endpoint
	Steps    []Step // steps so far; only the last may have failed
	Duration time.Duration
}

// OK reports whether a mail client could sign in next.
func (t CheckResult) OK() bool { return len(t.Steps) > 0 && t.Steps[len(t.Steps)-1].OK }

// Step is a step of a check.
type Step struct {
	Name   string // Connect, Encrypt, Offer
	OK     bool
	Detail string // what was found, or the error
}

// Check connects to all endpoints at once, negotiates TLS with each and reads its capabilities. It
// doesn't sign in. It takes at most 30 seconds; too many concurrent checks are fault.RateLimited.
func (c *EndpointChecker) Check(ctx context.Context) ([]CheckResult, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	default:
		return nil, fault.New(fault.RateLimited, "too_many_checks", "Many checks are being made at this moment. Try again in a few seconds.")
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	s := c.service.Settings("", "")
	var trials []CheckResult
	for _, e := range s.Incoming {
		trials = append(trials, CheckResult{Protocol: IMAP, Endpoint: e})
	}
	for _, e := range s.Outgoing {
		trials = append(trials, CheckResult{Protocol: SMTP, Endpoint: e})
	}
	var all sync.WaitGroup
	for i := range trials {
		all.Go(func() { c.checkEndpoint(ctx, &trials[i]) })
	}
	all.Wait()
	return trials, nil
}

// checkEndpoint runs the steps until one fails.
func (c *EndpointChecker) checkEndpoint(ctx context.Context, t *CheckResult) {
	began := time.Now()
	defer func() { t.Duration = time.Since(began) }()
	step := func(name, words string, err error) bool {
		if err != nil {
			words = explain(ctx, err)
		}
		t.Steps = append(t.Steps, Step{name, err == nil, words})
		return err == nil
	}
	raw, err := c.dialer.DialContext(ctx, "tcp", net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))))
	if !step("Connect", "The server answers.", err) {
		return
	}
	defer raw.Close() //nolint:errcheck // it ends anyway
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Now()) })
	defer stop()
	greet := map[string]func(*session) error{IMAP: (*session).imapStartTLS, SMTP: (*session).smtpStartTLS}[t.Protocol]
	if t.Security == STARTTLS {
		if err := greet(newSession(raw, t.Host)); err != nil {
			step("Encrypt", "", err)
			return
		}
	}
	sealed := tls.Client(raw, &tls.Config{ServerName: t.Host, RootCAs: c.roots})
	err = sealed.HandshakeContext(ctx)
	words := ""
	if err == nil {
		state := sealed.ConnectionState()
		words = fmt.Sprintf("%s, with a certificate that is valid until %s.", tls.VersionName(state.Version), state.PeerCertificates[0].NotAfter.UTC().Format("2 Jan 2006"))
	}
	if !step("Encrypt", words, err) {
		return
	}
	offer := map[string]func(*session, bool) error{IMAP: (*session).imapCheckAuth, SMTP: (*session).smtpCheckAuth}[t.Protocol]
	step("Offer", "Signing in with a password is offered.", offer(newSession(sealed, t.Host), t.Security == TLS))
}

// explain returns an error in words for people.
func explain(ctx context.Context, err error) string {
	var look *net.DNSError
	var verify *tls.CertificateVerificationError
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var said userError
	switch {
	case errors.As(err, &said):
		return string(said)
	case errors.As(err, &look) && look.IsNotFound:
		return "The server's name is not in the DNS."
	case errors.As(err, &look):
		return "The server's name could not be looked up."
	case errors.As(err, &host):
		return "The certificate is for another name."
	case errors.As(err, &authority):
		return "The certificate was not issued by a known authority, so mail clients warn of it."
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "The certificate has expired, or is not valid yet."
	case errors.As(err, &verify):
		return "The certificate does not stand up to verification."
	case ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded):
		return "There was no answer in time."
	case errors.Is(err, syscall.ECONNREFUSED):
		return "The connection was refused: nothing listens on this port, or a firewall closes it."
	}
	return "The connection broke off."
}
