// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"
)

// errPlaintextInjected: there was plaintext after the reply to STARTTLS, where an attacker could
// have injected it (RFC 3207 section 6; compare CVE-2011-0411).
var errPlaintextInjected = errors.New("the host sent more than its reply to STARTTLS before TLS began")

// Dial connects to a host and runs the session up to the first MAIL: greeting, EHLO or HELO,
// STARTTLS, AUTH. Every error is a *DialError.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	c := newConn(o)
	d := net.Dialer{Timeout: c.timeouts.Connect}
	if !validArgument(o.LocalName) {
		return nil, c.localDialError(NextHost, StageConnect, errors.New("our own name is not fit for EHLO"))
	}
	if o.LocalIP.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: o.LocalIP.AsSlice(), Zone: o.LocalIP.Zone()}
	}
	tcp, err := d.DialContext(ctx, "tcp", o.Addr.String())
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, c.localDialError(NextHost, StageConnect, err)
	}
	return c.establish(ctx, tcp)
}

// Open is Dial over an existing connection without an address, such as a pipe. It closes the
// connection on error.
func Open(ctx context.Context, conn net.Conn, o Options) (*Conn, error) {
	return newConn(o).establish(ctx, conn)
}

func newConn(o Options) *Conn {
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Conn{opts: o, timeouts: o.Timeouts.withDefaults(), peer: Peer{Host: o.Host, Addr: o.Addr}}
	c.transcript = newTranscript(o.Now)
	return c
}

// establish runs the session up to the first MAIL.
func (c *Conn) establish(ctx context.Context, tcp net.Conn) (*Conn, error) {
	c.transport = newTransport(tcp)
	release := c.transport.bindContext(ctx)
	err := c.startSession()
	release()
	if err == nil && c.transport.err != nil {
		err = c.localDialError(NextHost, StageConnect, c.transport.err)
	}
	if err != nil {
		c.closing = true
		_ = c.Close()
		return nil, err
	}
	c.preamble = c.transcript.text()
	return c, nil
}

// localDialError returns the error for a failure without a reply.
func (c *Conn) localDialError(class OutcomeClass, stage Stage, cause error) *DialError {
	enhanced := "4.4.2"
	switch stage {
	case StageConnect:
		enhanced = "4.4.1"
	case StageStartTLS, StageHandshake, StageAuth:
		enhanced = "4.7.0"
	}
	text := sanitize([]byte(cause.Error()))
	if c.opts.TLSRequiredBy != "" && (stage == StageStartTLS || stage == StageHandshake) {
		text = c.opts.TLSRequiredBy + ": " + text
		enhanced = "4.7.4" // RFC 3463 §3.8: security features not supported
		if stage == StageHandshake {
			enhanced = "4.7.5" // cryptographic failure
		}
	}
	c.transcript.note("%s", text)
	return &DialError{
		Outcome: localOutcome(class, stage, enhanced, text), Peer: c.peer,
		Transcript: c.transcript.text(), cause: cause,
	}
}

// replyDialError returns the error for a reply. err is the connection's error, if any.
func (c *Conn) replyDialError(stage Stage, r Reply, err error) error {
	if err != nil {
		return c.localDialError(NextHost, stage, err)
	}
	return &DialError{
		Outcome: Outcome{Class: Classify(stage, r), Stage: stage, Reply: r}, Peer: c.peer,
		Transcript: c.transcript.text(),
	}
}

func (c *Conn) startSession() error {
	if c.opts.Addr.IsValid() {
		c.transcript.note("connected to %s [%s]:%d", c.opts.Host, c.opts.Addr.Addr(), c.opts.Addr.Port())
	} else {
		c.transcript.note("connected to %s", c.opts.Host)
	}
	if c.opts.TLS == TLSImplicit {
		if err := c.handshake(); err != nil {
			return err
		}
	}
	r, err := c.recordReply(c.transport.readReply(c.timeouts.Greeting))
	if err != nil || r.Code != 220 {
		return c.replyDialError(StageGreeting, r, err)
	}
	if err := c.hello(); err != nil {
		return err
	}
	if c.opts.TestingPolicy != "" && !c.ext.StartTLS {
		c.transcript.note("%s: the host does not offer STARTTLS", c.opts.TestingPolicy)
	}
	if c.opts.TLS == TLSRequired && !c.ext.StartTLS {
		return c.localDialError(NextHost, StageStartTLS, errors.New("TLS is required, and the host does not offer STARTTLS"))
	}
	if c.ext.StartTLS && (c.opts.TLS == TLSRequired || c.opts.TLS == TLSOpportunistic) {
		if err := c.startTLS(); err != nil {
			return err
		}
		if err := c.hello(); err != nil {
			return c.lateHandshakeError(err)
		}
	}
	if c.opts.PlaintextReason != "" && c.ext.StartTLS {
		c.transcript.note("%s", c.opts.PlaintextReason)
	}
	if c.opts.Auth != nil {
		return c.authenticate()
	}
	return nil
}

// hello sends EHLO, and HELO if the host rejects that (RFC 5321 section 3.2).
func (c *Conn) hello() error {
	c.ext = Extensions{}
	line := "EHLO " + c.opts.LocalName
	r, err := c.command(line, line)
	if err == nil && r.positive() {
		c.ext = parseExtensions(r.Lines)
		return nil
	}
	if err != nil || r.Code/100 != 5 {
		return c.replyDialError(StageHello, r, err)
	}
	line = "HELO " + c.opts.LocalName
	r, err = c.command(line, line)
	if err != nil || !r.positive() {
		return c.replyDialError(StageHello, r, err)
	}
	return nil
}

func (c *Conn) startTLS() error {
	r, err := c.command("STARTTLS", "STARTTLS")
	if err != nil || !r.positive() {
		return c.allowPlaintextRetry(c.replyDialError(StageStartTLS, r, err))
	}
	if c.transport.br.Buffered() > 0 {
		return c.allowPlaintextRetry(c.localDialError(NextHost, StageStartTLS, errPlaintextInjected))
	}
	return c.allowPlaintextRetry(c.handshake())
}

// allowPlaintextRetry makes err ask for another connection, in clear, if opportunistic STARTTLS
// failed (RFC 7435 section 3).
func (c *Conn) allowPlaintextRetry(err error) error {
	var failed *DialError
	if errors.As(err, &failed) && c.opts.TLS == TLSOpportunistic && c.transport.ctx.Err() == nil {
		failed.Class = RetryPlaintext
	}
	return err
}

// lateHandshakeError treats a connection that breaks right after the handshake as a failed
// handshake: with TLS 1.3, a rejection by the host only shows at the first read.
func (c *Conn) lateHandshakeError(err error) error {
	var broken *DialError
	if errors.As(err, &broken) && broken.cause != nil && !errors.Is(broken.cause, errTimeout) {
		return c.allowPlaintextRetry(err)
	}
	return err
}

// tlsConfig returns the TLS configuration of this connection.
func (c *Conn) tlsConfig() *tls.Config {
	cfg := &tls.Config{}
	if c.opts.TLSConfig != nil {
		cfg = c.opts.TLSConfig.Clone()
	}
	if cfg.ServerName == "" {
		cfg.ServerName = c.opts.Host
	}
	if !c.opts.Verify {
		cfg.InsecureSkipVerify = true
	}
	if cfg.MinVersion == 0 && c.opts.TLS == TLSOpportunistic && !c.opts.Verify && cfg.VerifyConnection == nil {
		cfg.MinVersion = tls.VersionTLS10 // old TLS is better than none (RFC 7435 section 3)
	}
	return cfg
}

func (c *Conn) handshake() error {
	ctx, cancel := context.WithTimeout(c.transport.ctx, c.timeouts.Handshake)
	defer cancel()
	cfg := c.tlsConfig()
	t := tls.Client(c.transport.tcp, cfg)
	if err := c.transport.tcp.SetDeadline(c.transport.deadline(c.timeouts.Handshake)); err != nil {
		return c.localDialError(NextHost, StageHandshake, err)
	}
	if err := t.HandshakeContext(ctx); err != nil {
		if cause := context.Cause(c.transport.ctx); cause != nil {
			return c.localDialError(NextHost, StageHandshake, cause)
		}
		return c.localDialError(NextHost, StageHandshake, fmt.Errorf("TLS handshake: %w", err))
	}
	c.transport.startTLS(t)
	st := t.ConnectionState()
	c.peer.TLS = tls.VersionName(st.Version) + ", " + tls.CipherSuiteName(st.CipherSuite)
	c.peer.Verified = c.opts.Verify || cfg.VerifyConnection != nil
	if !c.peer.Verified {
		c.transcript.note("%s, certificate not checked", c.peer.TLS)
		c.checkTestingPolicy(st, cfg)
		return nil
	}
	by := "PKIX"
	if !c.opts.Verify {
		by = "DANE"
	}
	c.peer.TLS += ", verified: " + by
	c.transcript.note("%s", c.peer.TLS)
	return nil
}

// checkTestingPolicy notes in the transcript whether the certificate satisfies a policy in testing
// mode.
func (c *Conn) checkTestingPolicy(st tls.ConnectionState, cfg *tls.Config) {
	if c.opts.TestingPolicy == "" || len(st.PeerCertificates) == 0 {
		return
	}
	o := x509.VerifyOptions{DNSName: cfg.ServerName, Roots: cfg.RootCAs, Intermediates: x509.NewCertPool()}
	for _, more := range st.PeerCertificates[1:] {
		o.Intermediates.AddCert(more)
	}
	if _, err := st.PeerCertificates[0].Verify(o); err != nil {
		c.transcript.note("%s: %s", c.opts.TestingPolicy, sanitize([]byte(err.Error())))
		return
	}
	c.transcript.note("%s: the certificate is good", c.opts.TestingPolicy)
}
