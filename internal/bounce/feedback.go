// SPDX-License-Identifier: Apache-2.0

package bounce

import (
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// Feedback is the content of a complaint (RFC 5965).
type Feedback struct {
	Type     string         // Feedback-Type, lower case: abuse, fraud, virus, other, …
	Reporter string         // Reporting-MTA, or else the domain of the report's author
	Fields   message.Header // the machine-readable part; empty for formats without one
}

// readComplaint parses a feedback report, or a message that a feedback loop forwarded unchanged.
func (p *reportParts) readComplaint(r *Report) {
	r.Kind = Complaint
	f := p.feedback
	r.Feedback = Feedback{Type: "abuse", Fields: f}
	if len(f) > 0 {
		if kind := strings.ToLower(firstWord(f.Unfolded("Feedback-Type"))); kind != "" {
			r.Feedback.Type = kind
		}
		r.Feedback.Reporter = stripType(f.Unfolded("Reporting-MTA"))
		for _, name := range []string{"Original-Rcpt-To", "Removal-Recipient"} {
			if a := findAddress(f.Unfolded(name)); a != "" {
				r.Recipients = append(r.Recipients, Recipient{Address: a})
				break
			}
		}
	}
	if r.Feedback.Reporter == "" {
		if _, domain, ok := strings.Cut(findAddress(p.header.Unfolded("From")), "@"); ok {
			r.Feedback.Reporter = domain
		}
	}
	for _, h := range []message.Header{p.header, p.original} {
		if a := findAddress(h.Unfolded("X-HmXmrOriginalRecipient")); a != "" && len(r.Recipients) == 0 {
			r.Recipients = append(r.Recipients, Recipient{Address: a})
		}
	}
	r.setFeedbackKind()
}

// setFeedbackKind sets the kind to FeedbackNotice for reports that are no complaint.
func (r *Report) setFeedbackKind() {
	switch r.Feedback.Type {
	case "not-spam", "auth-failure", "dmarc", "opt-in": // no complaint about the mail (RFC 6430, RFC 6591)
		r.Kind = FeedbackNotice
	}
}

// isFeedbackLoopForward reports whether the message is from a feedback loop without a
// machine-readable part: Outlook.com's JMRP. It attaches the message and names the recipient in a
// header field.
func (p *reportParts) isFeedbackLoopForward() bool {
	return len(p.header.Unfolded("X-HmXmrOriginalRecipient")) > 0 || len(p.original) > 0 && len(p.original.Unfolded("X-HmXmrOriginalRecipient")) > 0
}
