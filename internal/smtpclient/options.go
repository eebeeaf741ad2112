// SPDX-License-Identifier: Apache-2.0

// Package smtpclient is an SMTP client (RFC 5321). A Conn is one connection to one host, and a Pool
// keeps connections for later messages. The package knows nothing about MX records, queues or
// policies. For each recipient it returns the host's reply, the command that it answers, and what
// that means for the delivery.
//
// The package makes three promises. It reports a recipient as Delivered only after a 2xx to the
// final dot. It never sends the final dot of a message that it could not read to the end. Input
// from the host uses only bounded memory and bounded time.
package smtpclient

import (
	"cmp"
	"crypto/tls"
	"net/netip"
	"time"
)

// TLSMode says how a connection is protected.
type TLSMode int

// The modes. Opportunistic is the zero value, as is usual for mail between servers (RFC 7435).
const (
	TLSOpportunistic TLSMode = iota // STARTTLS if it is offered, else in clear
	TLSRequired                     // STARTTLS must be offered and succeed (RFC 3207)
	TLSImplicit                     // TLS from the first byte (RFC 8314)
	TLSNever                        // in clear, even if STARTTLS is offered
)

// Auth is a login at a smart host (RFC 4954). It is sent only over TLS, or in clear to a loopback
// address.
type Auth struct {
	User     string
	Password string
}

// Timeouts are the longest waits of one session. For a zero field the default given beside it
// applies: the value of RFC 5321 section 4.5.3.2, or our own ("ours") where the RFC has none.
type Timeouts struct {
	Connect     time.Duration // TCP connection; 30 s, ours
	Greeting    time.Duration // 220; 5 min
	Command     time.Duration // EHLO, STARTTLS, AUTH, MAIL, RCPT, RSET; 5 min each
	Handshake   time.Duration // TLS; 1 min, ours
	DataInit    time.Duration // 354; 2 min
	DataBlock   time.Duration // each block of the message; 3 min
	Final       time.Duration // reply to the final dot; 10 min
	Transaction time.Duration // one message from MAIL to the last reply; 2 h, ours
	Quit        time.Duration // reply to QUIT; 5 s, ours: nothing depends on it
}

// Options say where and how to connect. Two Options with the same values may share connections in a
// Pool.
type Options struct {
	Addr netip.AddrPort // address to connect to
	// MaxConns is how many connections to Addr may exist now, for any host and policy, at most
	// PoolLimits.MaxPerHost; 0: MaxPerHost.
	MaxConns  int
	Host      string     // host name: TLS server name, name to verify, transcript
	LocalName string     // our name for EHLO: a domain name or an address literal
	LocalIP   netip.Addr // address to connect from; invalid: the system's choice

	TLS TLSMode
	// Verify checks the certificate against Host and the roots. Without it any certificate is
	// accepted (RFC 7435), unless TLSConfig has its own VerifyConnection, for DANE.
	Verify bool
	// TLSConfig is the base of the TLS configuration; may be nil. If it is set, set PolicyKey too.
	TLSConfig *tls.Config
	// PolicyKey distinguishes Options with different TLSConfig, for Pool.
	PolicyKey string
	// TLSRequiredBy names the policy that requires TLS, such as "DANE", for error texts.
	// TestingPolicy names a policy in testing mode: the certificate is checked against Host and the
	// roots of TLSConfig, and the transcript gets the result, or says that TLS is missing.
	// PolicyKey must distinguish it.
	TLSRequiredBy, TestingPolicy string
	// PlaintextReason, used with Never, is the transcript's reason why an offered STARTTLS is not
	// used.
	PlaintextReason string

	Auth     *Auth
	Timeouts Timeouts
	// Now is the clock of transcripts; nil means time.Now. Deadlines follow
	// the system's clock.
	Now func() time.Time
}

func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{
		Connect:     cmp.Or(t.Connect, 30*time.Second),
		Greeting:    cmp.Or(t.Greeting, 5*time.Minute),
		Command:     cmp.Or(t.Command, 5*time.Minute),
		Handshake:   cmp.Or(t.Handshake, time.Minute),
		DataInit:    cmp.Or(t.DataInit, 2*time.Minute),
		DataBlock:   cmp.Or(t.DataBlock, 3*time.Minute),
		Final:       cmp.Or(t.Final, 10*time.Minute),
		Transaction: cmp.Or(t.Transaction, 2*time.Hour),
		Quit:        cmp.Or(t.Quit, 5*time.Second),
	}
}
