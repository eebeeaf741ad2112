// SPDX-License-Identifier: Apache-2.0

// Package bounce understands what comes back when mail is not delivered: the
// reports of RFC 3464 with all that is broken in them, the many formats of
// hosts that never heard of it, complaints (RFC 5965), and the automatic
// replies that are neither. It also says what a host's answer means, by one
// table for the answers given while we speak to it and for those told later.
//
// The room is pure, reads at most MaxBytes bytes of a message, and never fails:
// what it can't read it calls Unknown.
package bounce

import (
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// Limits of what is read.
const (
	MaxBytes      = 1 << 20   // bytes of a message
	maxText       = 128 << 10 // bytes of a part, and of all delivery statuses
	maxProse      = 16 << 10  // bytes of what is said to people: the reason stands at the front
	maxTexts      = 20        // parts that are read
	maxRecipients = 50
	maxOriginal   = 64 << 10 // bytes of the returned header
	maxDiagnostic = 4 << 10  // bytes of what is told of one recipient
)

// Kind says what a message that came back is.
type Kind string

// The kinds of message.
const (
	Unknown        Kind = "unknown"
	Failure        Kind = "failure"    // given up for at least one recipient
	Delay          Kind = "delay"      // still being tried
	Success        Kind = "success"    // delivered, relayed or expanded
	AutoReply      Kind = "auto-reply" // out of office, a challenge, "we got your message"
	Complaint      Kind = "complaint"  // a recipient calls the message spam
	FeedbackNotice Kind = "notice"     // a feedback report that complains of nothing: not-spam, auth-failure
)

// Report is what a message says of one that was sent.
type Report struct {
	Kind Kind
	// Recipients are those that the kind is about, at least one for a Failure.
	Recipients []Recipient
	// OtherRecipients are the addresses of those of whom it tells anything else.
	OtherRecipients []string
	// Original is the header of the message that it is about, as far as it was
	// returned, else empty.
	Original message.Header
	// Feedback is set for a Complaint and a FeedbackNotice.
	Feedback Feedback
}

// Recipient is what a report says of one recipient.
type Recipient struct {
	Classification
	Address    string // where the message led to in the end; "" if not told
	Original   string // as the sender addressed it; "" if not told
	Code       int    // of SMTP, 0 if not told
	Enhanced   string // RFC 3463, "" if not told
	Diagnostic string // in one line, at most maxDiagnostic bytes
	Remote     string // the host that said so; "" if not told
}

// RecipientFor returns what a report to an address's own return path says of it. Where none
// has the address (which may have led to another since) that is the first; it is
// nil if its kind is about others only, to whom the address leads as well.
func (r *Report) RecipientFor(address string) *Recipient {
	its := func(a string) bool { return a != "" && strings.EqualFold(a, address) }
	n := slices.IndexFunc(r.Recipients, func(to Recipient) bool { return its(to.Address) })
	if n < 0 && slices.ContainsFunc(r.OtherRecipients, its) {
		return nil
	}
	if n < 0 {
		n = slices.IndexFunc(r.Recipients, func(to Recipient) bool { return its(to.Original) })
	}
	return &r.Recipients[max(n, 0)]
}

// Read reads a message, in any line ends. The error is r's.
func Read(r io.Reader) (*Report, error) {
	raw, err := io.ReadAll(io.LimitReader(r, MaxBytes))
	if err != nil {
		return nil, err
	}
	return Parse(raw), nil
}

// Parse reads a message that is in memory, in any line ends; what is beyond
// MaxBytes is ignored.
func Parse(raw []byte) *Report {
	p := splitParts(raw[:min(len(raw), MaxBytes)])
	r := &Report{Kind: Unknown, Original: p.original}
	if p.feedback != nil || p.isLoopForward() {
		p.readComplaint(r)
		return r
	}
	if p.readSES(r) {
		return r
	}
	told := parseStatus(p.status)
	if len(told) == 0 {
		for _, text := range p.texts {
			if told = slices.DeleteFunc(parseStatus(text), func(s recipientStatus) bool { return !s.isCertain() }); len(told) > 0 {
				break
			}
		}
	}
	words := p.prose()
	if len(told) == 0 {
		p.readProse(r, words)
		p.classifyBySubject(r)
		return r
	}
	plain := normalize(words)
	if isDelayText(plain, normalize(p.header.Decoded("Subject"))) {
		for i := range told { // whose Action is left out, though it is a must
			if told[i].actionKind() == "" && strings.HasPrefix(told[i].code, "4.") {
				told[i].action = "delayed"
			}
		}
	}
	r.Kind = overallKind(told)
	for i := range told {
		if told[i].kind() == r.Kind {
			r.Recipients = append(r.Recipients, told[i].recipient(words, plain))
		} else {
			r.OtherRecipients = append(r.OtherRecipients, told[i].final, told[i].original)
		}
	}
	p.classifyBySubject(r)
	return r
}

// classifyBySubject judges by the report's subject those recipients of whom nothing
// else says what was the matter ("Returned mail: User unknown").
func (p *reportParts) classifyBySubject(r *Report) {
	for i := range r.Recipients {
		to := &r.Recipients[i]
		if to.Subtype != General {
			continue
		}
		a := Reply{Stage: "dsn", Code: to.Code, Enhanced: to.Enhanced, Text: normalize(p.header.Decoded("Subject"))}
		if v := a.classify(); v.Subtype == NoMailbox || v.Subtype == NoDomain || v.Subtype == MailboxFull {
			to.Classification = v
		}
	}
}

// overallKind says what a delivery status is about: a failure if there is one.
func overallKind(told []recipientStatus) Kind {
	kind := Success
	for i := range told {
		switch told[i].kind() {
		case Failure:
			return Failure
		case Delay:
			kind = Delay
		}
	}
	return kind
}
