// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
)

// Stage is the point of a conversation at which something was decided.
type Stage string

// The stages, in their order.
const (
	StageConnect   Stage = "connect"
	StageGreeting  Stage = "greeting"
	StageHello     Stage = "ehlo"
	StageStartTLS  Stage = "starttls"  // the reply to the command
	StageHandshake Stage = "handshake" // TLS itself
	StageAuth      Stage = "auth"
	StageMail      Stage = "mail"
	StageRcpt      Stage = "rcpt"
	StageData      Stage = "data"
	StageFinal     Stage = "final" // the message's bytes and the final dot
)

// Class says what an outcome means for a delivery.
type Class int

// The classes.
const (
	Temporary      Class = iota // try again later
	Delivered                   // 2xx to the final dot
	Permanent                   // 5xx to MAIL, RCPT, DATA or the final dot; do not try again
	NextHost                    // this host has no conversation for us: try the next MX, then later
	RetryPlaintext              // STARTTLS failed where it was only opportunistic: dial again with Never (RFC 7435)
	Resend                      // too many recipients for one transaction: send to this one again at once
)

// String returns the class's name for logs.
func (c Class) String() string {
	names := [...]string{"temporary", "delivered", "permanent", "next host", "in clear", "resend"}
	if int(c) < len(names) {
		return names[c]
	}
	return "unknown"
}

// Outcome is what became of one recipient, or of an attempt to connect.
type Outcome struct {
	Class Class
	Stage Stage
	Reply Reply
	// Local: no server said this; we did. Reply.Code is then 0, and Enhanced
	// and Lines are ours.
	Local bool
}

// Peer tell with whom a conversation was held.
type Peer struct {
	Host     string         // name as dialled
	Addr     netip.AddrPort // address as dialled
	TLS      string         // "TLS 1.3, TLS_AES_128_GCM_SHA256", and ", verified: PKIX" or DANE; empty: in clear
	Verified bool           // the certificate was checked and fits the policy
}

// DialError tells why there is no connection.
type DialError struct {
	Outcome
	Peer       Peer
	Transcript string
	cause      error
}

// Error returns host, stage and reason.
func (e *DialError) Error() string {
	name := e.Peer.Host
	if name == "" {
		name = e.Peer.Addr.Addr().String()
	}
	return fmt.Sprintf("%s [%s], %s: %s", name, e.Peer.Addr.Addr(), e.Stage, e.Reply)
}

// ConnectionFailed reports whether the connection broke or took too long, which says
// nothing of what the host would have done.
func (e *DialError) ConnectionFailed() bool {
	var op *net.OpError
	if errors.As(e.cause, &op) {
		return op.Op != "remote error" && op.Op != "local error" // alerts of TLS
	}
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, errTimeout, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(e.cause, broken) {
			return true
		}
	}
	return false
}

// Unwrap returns the network's or TLS's error; nil if a server refused.
func (e *DialError) Unwrap() error { return e.cause }

// Classify says what a reply means at a stage. Before MAIL any refusal is the
// host's affair and not the message's: the next MX is asked.
func Classify(stage Stage, r Reply) Class {
	switch stage {
	case StageMail, StageRcpt, StageData, StageFinal:
	default:
		return NextHost
	}
	switch {
	case r.positive() && stage == StageFinal:
		return Delivered
	case stage == StageRcpt && tooManyRecipients(r):
		return Temporary
	case r.Code/100 == 5:
		return Permanent
	}
	return Temporary
}

// tooManyRecipients recognises a limit on recipients, also where it comes as
// the 552 of older hosts (RFC 5321 section 4.5.3.1.10).
func tooManyRecipients(r Reply) bool {
	if r.Code != 452 && r.Code != 552 {
		return false
	}
	if r.Enhanced == "4.5.3" || r.Enhanced == "5.5.3" {
		return true
	}
	return strings.Contains(strings.ToLower(r.Text()), "too many recipients")
}

// localOutcome makes an outcome of our own.
func localOutcome(class Class, stage Stage, enhanced, text string) Outcome {
	return Outcome{Class: class, Stage: stage, Local: true, Reply: Reply{Enhanced: enhanced, Lines: []string{text}}}
}
