// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/thread"
)

// addAutoReply plans the automatic reply of a mailbox whose owner is away, if the message qualifies
// for one (RFC 3834 §2). The plan's commit checks whether the sender got a reply recently. A reply
// that must not be sent now is dropped.
func (e *deliveryPlan) addAutoReply(ctx context.Context, to mailbox.Recipient) error {
	i := e.service
	sender, err := address.Parse(e.sender)
	shown := e.fromLocal || e.message.passedSPF() && e.message.checkResults.DMARC != string(mailauth.Fail)
	if err != nil || !shown || !mayAutoReply(e.message.header, sender) {
		return nil //nolint:nilerr // nobody is to be answered
	}
	v, err := i.Mailboxes.VacationByMailbox(ctx, to.Mailbox)
	if err != nil || !v.Active(i.Now()) {
		return err
	}
	box, err := i.Mailboxes.ByID(ctx, to.Mailbox)
	if fault.Is(err, fault.NotFound) {
		return nil // the mailbox was deleted just now
	}
	if err != nil {
		return err
	}
	own, err := i.Mailboxes.OwnAddresses(ctx, box)
	if err != nil {
		return err
	}
	from, ok := ownRecipient(e.message.header, own)
	if base, _ := sender.SplitTag(); !ok || own[base.Key()] {
		return nil
	}
	if done, err := i.Mailboxes.HasReplied(ctx, to.Mailbox, v, sender.Key()); err != nil || done {
		return err
	}
	a := outbound.AutoReply{
		Account: to.Account, Mailbox: to.Mailbox, Name: box.DisplayName, From: from, To: sender, Text: v.Text,
		Subject: autoReplySubject(v.Subject, e.message.header), Thread: e.message.threads[to.Account],
		Condition: v.ReplyOnce(to.Mailbox, sender.Key(), i.Now()),
	}
	a.InReplyTo, a.References = replyReferences(e.message.header)
	ready, err := i.Outbox.PrepareAutoReply(ctx, a)
	switch {
	case err == nil:
		e.outgoing = append(e.outgoing, ready)
		return nil
	case fault.Is(err, fault.Denied), fault.Is(err, fault.RateLimited), fault.Is(err, fault.Invalid):
		i.Log.Info("a mailbox whose owner is away does not answer", "mailbox", to.Mailbox, "arrival", e.message.arrivalID, "reason", err)
		return nil
	}
	return err
}

// mayAutoReply reports whether the header and sender indicate a message from a person to people
// (RFC 3834 §2, RFC 5230 §4.6).
func mayAutoReply(h message.Header, sender address.Address) bool {
	if isAutomatedLocalPart(sender.Local) {
		return false
	}
	for f := range h.Fields() {
		name, value := strings.ToLower(string(f.Name)), strings.ToLower(f.Unfolded())
		value, _, _ = strings.Cut(value, "(") // a comment
		first, _, _ := strings.Cut(value, ";")
		first = strings.TrimSpace(first)
		switch {
		case name == "auto-submitted" && first != "no",
			strings.HasPrefix(name, "list-"), name == "mailing-list", name == "x-mailing-list",
			name == "precedence" && (first == "bulk" || first == "list" || first == "junk" || first == "auto_reply"),
			name == "x-auto-response-suppress" && suppressesAutoReply(value),
			name == "x-autoreply", name == "x-autorespond", name == "x-failed-recipients", name == "feedback-id",
			name == "content-type" && first == "multipart/report":
			return false
		}
	}
	for _, a := range append(h.Addresses("From"), h.Addresses("Sender")...) {
		if isAutomatedLocalPart(a.Local) {
			return false
		}
	}
	return true
}

// suppressesAutoReply reports whether a lower-case value of X-Auto-Response-Suppress forbids
// automatic replies (MS-OXCMAIL §2.2.3.2.14). The other words of that field concern delivery and
// read reports.
func suppressesAutoReply(value string) bool {
	words := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ';' || r == ' ' || r == '\t' })
	return slices.ContainsFunc(words, func(word string) bool { return word == "all" || word == "oof" || word == "autoreply" })
}

// isAutomatedLocalPart reports whether nobody reads mail to a local part: that of a mail system, a
// mailing list, or a no-reply sender.
func isAutomatedLocalPart(local string) bool {
	if secret.IsReturnOrUnsubscribePath(local) {
		return true
	}
	name := address.LocalKey(local)
	for _, whole := range []string{
		"mailer-daemon", "mailerdaemon", "postmaster", "listserv", "majordomo", "mailman", "hostmaster", "abuse", "root", "daemon", "bounce", "bounces",
	} {
		if name == whole || strings.HasPrefix(name, whole+"+") {
			return true
		}
	}
	for _, begin := range []string{"owner-", "bounce-", "bounces-", "prvs=bounce"} {
		if strings.HasPrefix(name, begin) {
			return true
		}
	}
	for _, end := range []string{"-request", "-owner", "-bounce", "-bounces", "-errors", "-relay"} {
		if strings.HasSuffix(name, end) || strings.Contains(name, end+"+") {
			return true
		}
	}
	plain := strings.NewReplacer("-", "", "_", "", ".", "").Replace(name)
	return strings.Contains(plain, "noreply") || strings.Contains(plain, "donotreply")
}

// ownRecipient returns the owner's address, perhaps with a plus-tag, that a message names as its
// recipient. There is no reply to mail received through a list or as a blind copy (RFC 5230 §4.5).
func ownRecipient(h message.Header, own map[string]bool) (address.Address, bool) {
	for _, field := range []string{"To", "Cc", "Bcc", "Resent-To", "Resent-Cc", "Resent-Bcc"} {
		for _, named := range h.Addresses(field) {
			a, err := address.Parse(named.String())
			if err != nil {
				continue
			}
			if base, _ := a.SplitTag(); own[base.Key()] {
				return a, true
			}
		}
	}
	return address.Address{}, false
}

// maxReplySubject is the length, in bytes, up to which a reply repeats a subject.
const maxReplySubject = 200

// autoReplySubject returns the subject of a reply: the owner's, or else one made from the message's
// (RFC 3834 §3.1.5).
func autoReplySubject(own string, h message.Header) string {
	if own != "" {
		return own
	}
	subject := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(h.Decoded("Subject"), "\uFFFD"))
	if subject = strings.TrimSpace(subject); len(subject) > maxReplySubject {
		subject = strings.ToValidUTF8(subject[:maxReplySubject], "") + "…"
	}
	if subject == "" {
		return "Automatic reply"
	}
	return "Auto: " + subject
}

// replyReferences returns In-Reply-To and References for a reply to a message (RFC 5322 §3.6.4).
func replyReferences(h message.Header) (inReplyTo string, references []string) {
	before := h.References()
	if own := h.MessageID(); own != "" {
		before = append(before, own)
		if message.IsUsableMessageID(own) {
			inReplyTo = own
		}
	}
	for _, id := range before {
		if message.IsUsableMessageID(id) {
			references = append(references, id)
		}
	}
	if over := len(references) - thread.MaxReferences; over > 0 {
		references = append(references[:1], references[1+over:]...)
	}
	return inReplyTo, references
}
