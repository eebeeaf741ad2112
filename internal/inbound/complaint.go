// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/bounce"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/secret"
)

// feedbackLocalPart is the local part, at the service's host, for reports of feedback loops (RFC
// 6449). Mail to it is processed but not stored.
const feedbackLocalPart = "fbl"

// abuseLocalPart is where some feedback loops send their reports (RFC 2142 §2). Mail to it is also
// filed like any other.
const abuseLocalPart = "abuse"

// isFeedbackAddress reports whether an address is the one for feedback loops.
func (i *Service) isFeedbackAddress(to address.Address) bool {
	return strings.EqualFold(to.Local, feedbackLocalPart) && to.Domain == i.Host
}

// recordComplaint records a complaint about a delivery in the queue. If the message was deleted
// meanwhile (retention), the recipient is still suppressed if the report names it. If no trace of
// the message is left, the complaint is ignored.
func (i *Service) recordComplaint(ctx context.Context, r returnPath, told *bounce.Report) error {
	changed, err := i.Queue.RecordComplaint(ctx, r.message, r.n, queue.Report{Text: told.Feedback.Type, Remote: told.Feedback.Reporter})
	if fault.Is(err, fault.NotFound) || err == nil && !changed {
		changed, err = i.recordPastComplaint(ctx, r, told)
	}
	if err == nil {
		i.Log.Info("a complaint", "message", r.message, "n", r.n, "feedback", told.Feedback.Type, "reporter", told.Feedback.Reporter, "changed", changed)
	}
	return err
}

// recordPastComplaint records a complaint about a message that was deleted meanwhile.
func (i *Service) recordPastComplaint(ctx context.Context, r returnPath, told *bounce.Report) (changed bool, err error) {
	var named []address.Address
	add := func(text string) {
		if a, err := address.Parse(text); err == nil && len(named) < maxPathCandidates {
			named = append(named, a)
		}
	}
	for n := range told.Recipients {
		add(told.Recipients[n].Original)
		add(told.Recipients[n].Address)
	}
	for _, field := range []string{"To", "Cc"} {
		for _, a := range told.Original.Addresses(field) {
			add(a.Local + "@" + a.Domain)
		}
	}
	_, to, err := i.Outbox.PrunedRecipient(ctx, r.message, r.n, named)
	if err == nil {
		changed, err = i.Queue.RecordComplaintOfDeleted(ctx, r.message, r.n, to, queue.Report{Text: told.Feedback.Type, Remote: told.Feedback.Reporter})
	}
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return changed, err
}

// handleFeedback processes a message to a feedback address. Anybody can write to it, so a complaint
// counts only if it contains the signed return path of the delivery. Only the recipient's side has
// seen that path.
func (i *Service) handleFeedback(ctx context.Context, s *spooledMessage) error {
	told, err := i.parseReport(ctx, s)
	if err != nil {
		return err
	}
	if told.Kind == bounce.Complaint {
		for _, header := range [][]byte{told.Feedback.Fields, told.Original} {
			if r, ok := i.findReturnPath(string(header)); ok {
				return i.recordComplaint(ctx, r, told)
			}
		}
	}
	i.Log.Info("a message to a feedback address that complains of nothing known", "kind", told.Kind, "feedback", told.Feedback.Type)
	return nil
}

// maxPathCandidates is the number of words in a header that are tried as return paths.
const maxPathCandidates = 100

// findReturnPath returns the first signed return path in a header.
func (i *Service) findReturnPath(header string) (r returnPath, ok bool) {
	local := func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-')
	}
	tried := 0
	for word := range strings.FieldsFuncSeq(header, local) {
		if !secret.IsReturnOrUnsubscribePath(word) {
			continue
		}
		if id, n, ok := i.Key.ParseReturnPath(word); ok {
			return returnPath{message: db.ID(id), n: n}, true
		}
		if tried++; tried == maxPathCandidates {
			break
		}
	}
	return returnPath{}, false
}

// RecordJunked records complaints when a user moves messages into the Junk folder of a mailbox
// here. It counts only API mail, and only its delivery to that mailbox, once. Private mail of the
// service is exempt, because it must continue to arrive: it may contain a user's only way to log in
// again. An error with one message doesn't prevent complaints about others.
func (i *Service) RecordJunked(ctx context.Context, mailbox db.ID, sent []db.ID) error {
	var errs []error
	for _, id := range sent {
		if err := i.recordJunked(ctx, mailbox, id); err != nil {
			errs = append(errs, fmt.Errorf("message %d: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

func (i *Service) recordJunked(ctx context.Context, mailbox, id db.ID) error {
	about, err := i.Outbox.MessageInfo(ctx, id)
	if fault.Is(err, fault.NotFound) || err == nil && (!about.API || about.Private) {
		return nil
	}
	if err != nil {
		return err
	}
	all, err := i.Queue.Deliveries(ctx, id)
	if err != nil {
		return err
	}
	for _, d := range all {
		if d.State != queue.Delivered {
			continue
		}
		leads, err := i.routesTo(ctx, d.Recipient, mailbox)
		if err != nil {
			return err
		}
		if !leads {
			continue
		}
		changed, err := i.Queue.RecordComplaint(ctx, id, d.N, queue.Report{Text: "abuse", Remote: i.Host})
		if err != nil {
			return err
		}
		i.Log.Info("a complaint", "message", id, "n", d.N, "mailbox", mailbox, "changed", changed)
	}
	return nil
}

// routesTo reports whether mail to an address goes to a mailbox.
func (i *Service) routesTo(ctx context.Context, to string, box db.ID) (bool, error) {
	a, err := address.Parse(to)
	if err != nil {
		return false, nil //nolint:nilerr // such an address leads nowhere here
	}
	route, err := i.Mailboxes.Route(ctx, a)
	if err != nil && fault.KindOf(err) != fault.Internal {
		return false, nil // the address leads nowhere
	}
	return slices.ContainsFunc(route.Mailboxes, func(r mailbox.Recipient) bool { return r.Mailbox == box }), err
}
