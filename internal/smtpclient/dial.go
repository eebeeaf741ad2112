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

// errInjected: something in clear stood behind the reply to STARTTLS, where a
// third party could have put it (RFC 3207 section 6; CVE-2011-0411's kin).
var errInjected = errors.New("the host sent more than its reply to STARTTLS before TLS began")

// Dial connects, and leads the conversation up to the first MAIL: greeting,
// EHLO or HELO, STARTTLS, AUTH. Every error is a *DialError.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	c := newConn(o)
	d := net.Dialer{Timeout: c.times.Connect}
	if !plainWord(o.LocalName) {
		return nil, c.refuse(NextHost, StageConnect, errors.New("our own name is not fit for EHLO"))
	}
	if o.LocalIP.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: o.LocalIP.AsSlice(), Zone: o.LocalIP.Zone()}
	}
	tcp, err := d.DialContext(ctx, "tcp", o.Addr.String())
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, c.refuse(NextHost, StageConnect, err)
	}
	return c.begins(ctx, tcp)
}

// Open is Dial over a connection that is there: one without an address, such as a
// pipe. An error closes it.
func Open(ctx context.Context, conn net.Conn, o Options) (*Conn, error) {
	return newConn(o).begins(ctx, conn)
}

func newConn(o Options) *Conn {
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Conn{opts: o, times: o.Timeouts.withDefaults(), facts: Facts{Host: o.Host, Addr: o.Addr}}
	c.log = newTranscript(o.Now)
	return c
}

// begins leads the conversation up to the first MAIL.
func (c *Conn) begins(ctx context.Context, tcp net.Conn) (*Conn, error) {
	c.w = newWire(tcp)
	release := c.w.use(ctx)
	err := c.open()
	release()
	if err == nil && c.w.err != nil {
		err = c.refuse(NextHost, StageConnect, c.w.err)
	}
	if err != nil {
		c.closing = true
		_ = c.Close()
		return nil, err
	}
	c.preamble = c.log.text()
	return c, nil
}

// refuse makes the error for a failure that no reply stands for.
func (c *Conn) refuse(class Class, stage Stage, cause error) *DialError {
	enhanced := "4.4.2"
	switch stage {
	case StageConnect:
		enhanced = "4.4.1"
	case StageStartTLS, StageHandshake, StageAuth:
		enhanced = "4.7.0"
	}
	text := clean([]byte(cause.Error()))
	if c.opts.Demand != "" && (stage == StageStartTLS || stage == StageHandshake) {
		text = c.opts.Demand + ": " + text
		enhanced = "4.7.4" // RFC 3463 §3.8: security features not supported
		if stage == StageHandshake {
			enhanced = "4.7.5" // cryptographic failure
		}
	}
	c.log.note("%s", text)
	return &DialError{
		Outcome: local(class, stage, enhanced, text), Facts: c.facts,
		Transcript: c.log.text(), cause: cause,
	}
}

// refused makes the error for a reply; err is the connection's, if any.
func (c *Conn) refused(stage Stage, r Reply, err error) error {
	if err != nil {
		return c.refuse(NextHost, stage, err)
	}
	return &DialError{
		Outcome: Outcome{Class: Classify(stage, r), Stage: stage, Reply: r}, Facts: c.facts,
		Transcript: c.log.text(),
	}
}

func (c *Conn) open() error {
	if c.opts.Addr.IsValid() {
		c.log.note("connected to %s [%s]:%d", c.opts.Host, c.opts.Addr.Addr(), c.opts.Addr.Port())
	} else {
		c.log.note("connected to %s", c.opts.Host)
	}
	if c.opts.TLS == Implicit {
		if err := c.handshake(); err != nil {
			return err
		}
	}
	r, err := c.heard(c.w.reply(c.times.Greeting))
	if err != nil || r.Code != 220 {
		return c.refused(StageGreeting, r, err)
	}
	if err := c.hello(); err != nil {
		return err
	}
	if c.opts.Audit != "" && !c.ext.StartTLS {
		c.log.note("%s: the host does not offer STARTTLS", c.opts.Audit)
	}
	if c.opts.TLS == Required && !c.ext.StartTLS {
		return c.refuse(NextHost, StageStartTLS, errors.New("TLS is required, and the host does not offer STARTTLS"))
	}
	if c.ext.StartTLS && (c.opts.TLS == Required || c.opts.TLS == Opportunistic) {
		if err := c.startTLS(); err != nil {
			return err
		}
		if err := c.hello(); err != nil {
			return c.afterTLS(err)
		}
	}
	if c.opts.Clear != "" && c.ext.StartTLS {
		c.log.note("%s", c.opts.Clear)
	}
	if c.opts.Auth != nil {
		return c.login()
	}
	return nil
}

// hello says EHLO, and HELO to a host that refuses it (RFC 5321 section 3.2).
func (c *Conn) hello() error {
	c.ext = Extensions{}
	line := "EHLO " + c.opts.LocalName
	r, err := c.command(line, line)
	if err == nil && r.positive() {
		c.ext = parseExtensions(r.Lines)
		return nil
	}
	if err != nil || r.Code/100 != 5 {
		return c.refused(StageHello, r, err)
	}
	line = "HELO " + c.opts.LocalName
	r, err = c.command(line, line)
	if err != nil || !r.positive() {
		return c.refused(StageHello, r, err)
	}
	return nil
}

func (c *Conn) startTLS() error {
	r, err := c.command("STARTTLS", "STARTTLS")
	if err != nil || !r.positive() {
		return c.withoutTLS(c.refused(StageStartTLS, r, err))
	}
	if c.w.br.Buffered() > 0 {
		return c.withoutTLS(c.refuse(NextHost, StageStartTLS, errInjected))
	}
	return c.withoutTLS(c.handshake())
}

// withoutTLS asks for another connection, in clear, if err says that STARTTLS
// failed where nobody demands it (RFC 7435 section 3).
func (c *Conn) withoutTLS(err error) error {
	var failed *DialError
	if errors.As(err, &failed) && c.opts.TLS == Opportunistic && c.w.ctx.Err() == nil {
		failed.Class = InClear
	}
	return err
}

// afterTLS makes a failed handshake of a connection that breaks right after one:
// what the host thinks of our last words of TLS 1.3 shows at the first read.
func (c *Conn) afterTLS(err error) error {
	var broken *DialError
	if errors.As(err, &broken) && broken.cause != nil && !errors.Is(broken.cause, errSlow) {
		return c.withoutTLS(err)
	}
	return err
}

// tlsConfig returns the configuration of this connection.
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
	if cfg.MinVersion == 0 && c.opts.TLS == Opportunistic && !c.opts.Verify && cfg.VerifyConnection == nil {
		cfg.MinVersion = tls.VersionTLS10 // old TLS is better than none (RFC 7435 section 3)
	}
	return cfg
}

func (c *Conn) handshake() error {
	ctx, cancel := context.WithTimeout(c.w.ctx, c.times.Handshake)
	defer cancel()
	cfg := c.tlsConfig()
	t := tls.Client(c.w.tcp, cfg)
	if err := c.w.tcp.SetDeadline(c.w.within(c.times.Handshake)); err != nil {
		return c.refuse(NextHost, StageHandshake, err)
	}
	if err := t.HandshakeContext(ctx); err != nil {
		if cause := context.Cause(c.w.ctx); cause != nil {
			return c.refuse(NextHost, StageHandshake, cause)
		}
		return c.refuse(NextHost, StageHandshake, fmt.Errorf("TLS handshake: %w", err))
	}
	c.w.secure(t)
	st := t.ConnectionState()
	c.facts.TLS = tls.VersionName(st.Version) + ", " + tls.CipherSuiteName(st.CipherSuite)
	c.facts.Verified = c.opts.Verify || cfg.VerifyConnection != nil
	if !c.facts.Verified {
		c.log.note("%s, certificate not checked", c.facts.TLS)
		c.audit(st, cfg)
		return nil
	}
	by := "PKIX"
	if !c.opts.Verify {
		by = "DANE"
	}
	c.facts.TLS += ", verified: " + by
	c.log.note("%s", c.facts.TLS)
	return nil
}

// audit notes whether the certificate would do for a policy that is only
// being tried out.
func (c *Conn) audit(st tls.ConnectionState, cfg *tls.Config) {
	if c.opts.Audit == "" || len(st.PeerCertificates) == 0 {
		return
	}
	o := x509.VerifyOptions{DNSName: cfg.ServerName, Roots: cfg.RootCAs, Intermediates: x509.NewCertPool()}
	for _, more := range st.PeerCertificates[1:] {
		o.Intermediates.AddCert(more)
	}
	if _, err := st.PeerCertificates[0].Verify(o); err != nil {
		c.log.note("%s: %s", c.opts.Audit, clean([]byte(err.Error())))
		return
	}
	c.log.note("%s: the certificate is good", c.opts.Audit)
}
