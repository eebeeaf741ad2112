// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Stage is the point of a session at which an outcome was decided.
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

// OutcomeClass says what an outcome means for a delivery.
type OutcomeClass int

// The classes.
const (
	Temporary       OutcomeClass = iota // try again later
	Delivered                           // 2xx to the final dot
	Permanent                           // 5xx to MAIL, RCPT, DATA or the final dot; do not try again
	NextHost                            // the host refuses a session: try the next MX, then try again later
	RetryPlaintext                      // opportunistic STARTTLS failed: dial again with Never (RFC 7435)
	NextTransaction                     // too many recipients for one transaction: send to this one at once in another
)

// String returns the class's name for logs.
func (c OutcomeClass) String() string {
	names := [...]string{"temporary", "delivered", "permanent", "next host", "retry in clear", "next transaction"}
	if int(c) < len(names) {
		return names[c]
	}
	return "unknown"
}

// Outcome is the result for one recipient, or of an attempt to connect.
type Outcome struct {
	Class OutcomeClass
	Stage Stage
	Reply Reply
	// Local is set if this package made the outcome, and not a server. Reply.Code is then 0, and
	// Enhanced and Lines are our own.
	Local bool
}

// Peer identifies the other end of a session.
type Peer struct {
	Host     string         // name as dialled
	Addr     netip.AddrPort // address as dialled
	TLS      string         // "TLS 1.3, TLS_AES_128_GCM_SHA256", and ", verified: PKIX" or DANE; empty: in clear
	Verified bool           // whether the certificate was checked and satisfies the policy
}

// DialError says why a connection could not be opened.
type DialError struct {
	Outcome
	Peer       Peer
	Transcript string
	cause      error
}

// Error returns the host, the stage and the reason.
func (e *DialError) Error() string {
	name := e.Peer.Host
	if name == "" {
		name = e.Peer.Addr.Addr().String()
	}
	return fmt.Sprintf("%s [%s], %s: %s", name, e.Peer.Addr.Addr(), e.Stage, e.Reply)
}

// ConnectionFailed reports whether the connection broke or timed out, which says nothing about how
// the host would have answered.
func (e *DialError) ConnectionFailed() bool {
	if op, ok := errors.AsType[*net.OpError](e.cause); ok {
		return op.Op != "remote error" && op.Op != "local error" // alerts of TLS
	}
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, errTimeout, context.DeadlineExceeded, context.Canceled},
		func(broken error) bool { return errors.Is(e.cause, broken) })
}

// Unwrap returns the error of the network or of TLS; nil if the server rejected us.
func (e *DialError) Unwrap() error { return e.cause }

// Classify returns what a reply means at a stage. A rejection before MAIL concerns the host and not
// the message, so the next MX is tried.
func Classify(stage Stage, r Reply) OutcomeClass {
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

// tooManyRecipients reports whether a reply is about a limit on recipients, including the 552 of
// older hosts (RFC 5321 section 4.5.3.1.10).
func tooManyRecipients(r Reply) bool {
	if r.Code != 452 && r.Code != 552 {
		return false
	}
	if r.Enhanced == "4.5.3" || r.Enhanced == "5.5.3" {
		return true
	}
	return strings.Contains(strings.ToLower(r.Text()), "too many recipients")
}

// localOutcome returns an outcome that no server gave.
func localOutcome(class OutcomeClass, stage Stage, enhanced, text string) Outcome {
	return Outcome{Class: class, Stage: stage, Local: true, Reply: Reply{Enhanced: enhanced, Lines: []string{text}}}
}
