// SPDX-License-Identifier: Apache-2.0

// Package bounce parses the messages that mail servers return: delivery reports (RFC 3464),
// including malformed ones, the formats of hosts that don't use RFC 3464, complaints (RFC 5965),
// and automatic replies. It also classifies SMTP replies, with one table for replies received
// during an attempt and for those in later reports.
//
// The package has no state and does no I/O except through the given reader. It reads at most
// MaxBytes bytes of a message. It reports messages that it can't parse as Unknown instead of
// failing.
package bounce

import (
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// Limits on the parsed input.
const (
	MaxBytes      = 1 << 20   // bytes of a message
	maxText       = 128 << 10 // bytes of a part, and of all delivery statuses
	maxProse      = 16 << 10  // bytes of text for people: the reason is at the beginning
	maxTexts      = 20        // parsed parts
	maxRecipients = 50
	maxOriginal   = 64 << 10 // bytes of the returned header
	maxDiagnostic = 4 << 10  // bytes about one recipient
)

// Kind is the kind of a returned message.
type Kind string

// Kinds of messages.
const (
	Unknown        Kind = "unknown"
	Failure        Kind = "failure"    // delivery failed for at least one recipient
	Delay          Kind = "delay"      // delivery is still being tried
	Success        Kind = "success"    // delivered, relayed or expanded
	AutoReply      Kind = "auto-reply" // out of office, a challenge, "we got your message"
	Complaint      Kind = "complaint"  // a recipient reports the message as spam
	FeedbackNotice Kind = "notice"     // a feedback report without a complaint: not-spam, auth-failure
)

// Report is a parsed message about a sent message.
type Report struct {
	Kind Kind
	// Recipients are the recipients that Kind applies to, at least one for a Failure.
	Recipients []Recipient
	// OtherRecipients are the addresses of recipients with another status.
	OtherRecipients []string
	// Original is the header of the sent message as far as it was returned, otherwise empty.
	Original message.Header
	// Feedback is set for a Complaint and a FeedbackNotice.
	Feedback Feedback
}

// Recipient is the status of one recipient.
type Recipient struct {
	Classification
	Address    string // final address; "" if unknown
	Original   string // address given by the sender; "" if unknown
	Code       int    // SMTP code; 0 if unknown
	Enhanced   string // RFC 3463; "" if unknown
	Diagnostic string // one line, at most maxDiagnostic bytes
	Remote     string // host that gave the status; "" if unknown
}

// RecipientFor returns the status of the address whose return path received the report. If no
// recipient has that address, which may have been forwarded since, it returns the first. It returns
// nil if the address is among OtherRecipients only.
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

// Read parses a message with any line ends. The error is r's.
func Read(r io.Reader) (*Report, error) {
	raw, err := io.ReadAll(io.LimitReader(r, MaxBytes))
	if err != nil {
		return nil, err
	}
	return Parse(raw), nil
}

// Parse parses a message in memory, with any line ends. It ignores everything beyond MaxBytes.
func Parse(raw []byte) *Report {
	p := splitParts(raw[:min(len(raw), MaxBytes)])
	r := &Report{Kind: Unknown, Original: p.original}
	if p.feedback != nil || p.isFeedbackLoopForward() {
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
		for i := range told { // without an Action, although it is required
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

// classifyBySubject classifies the recipients without a known reason by the report's subject
// ("Returned mail: User unknown").
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

// overallKind returns the kind of a delivery status: Failure if any recipient failed.
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
