// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/queue"
)

// maxStatus is how much of a delivery status is read.
const maxStatus = 64 << 10

// reported hands what a DSN says about a delivery to the queue. A message that
// is none, such as an automatic reply, changes nothing.
func (i *Inbound) reported(ctx context.Context, r report, s *spooled) error {
	text, err := i.status(ctx, s)
	if err != nil {
		return err
	}
	found, ok := readStatus(text)
	if !ok {
		i.Log.Info("a message to a return path that reports no failure", "message", r.message, "n", r.n, "subject", digest.Clip(s.header.Decoded("Subject"), 200))
		return nil
	}
	changed, err := i.Queue.Bounced(ctx, r.message, r.n, found.Report)
	if fault.Is(err, fault.NotFound) || err == nil && !changed {
		changed, err = i.reportedPast(ctx, r, found)
	}
	if err == nil {
		i.Log.Info("a report of failure", "message", r.message, "n", r.n, "status", found.Enhanced, "changed", changed)
	}
	return err
}

// reportedPast takes a DSN about a message that was deleted meanwhile (retention).
// Whoever got the message knows its return path, but could name anybody's
// address in a report: only that of the delivery itself is believed.
func (i *Inbound) reportedPast(ctx context.Context, r report, found failure) (suppressed bool, err error) {
	account, to, err := i.Outbox.Past(ctx, r.message, r.n, found.recipients)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return i.Queue.BouncedPast(ctx, account, r.message, r.n, to, found.Report)
}

// status returns the machine-readable part of a DSN (RFC 3464 §2, RFC 6533),
// nil if there is none.
func (i *Inbound) status(ctx context.Context, s *spooled) ([]byte, error) {
	for n := range s.index.Parts {
		p := &s.index.Parts[n]
		if p.Type != "message" || p.Subtype != "delivery-status" && p.Subtype != "global-delivery-status" {
			continue
		}
		r, err := s.blob.Open(ctx)
		if err != nil {
			return nil, err
		}
		defer r.Close() //nolint:errcheck // only read
		part := p.Decode(io.NewSectionReader(r, p.Body.Start, p.Body.Len))
		return io.ReadAll(io.LimitReader(part, maxStatus))
	}
	return nil, nil
}

// failure is what a DSN says of the first recipient that failed.
type failure struct {
	queue.Report
	recipients []address.Address // as it was addressed, and where that led to
}

// readStatus finds the first recipient of a delivery status that failed. Our
// return paths are for one recipient each, so it is the one.
func readStatus(text []byte) (failure, bool) {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	for group := range bytes.SplitSeq(text, []byte("\n\n")) {
		h := message.Header(append(bytes.ReplaceAll(bytes.TrimLeft(group, "\n"), []byte("\n"), []byte("\r\n")), '\r', '\n'))
		if !strings.EqualFold(h.Text("Action"), "failed") {
			continue
		}
		r := failure{Report: queue.Report{Enhanced: enhanced(h.Text("Status")), Remote: typed(h.Text("Remote-MTA")), Text: typed(h.Text("Diagnostic-Code"))}}
		if code, _, _ := strings.Cut(strings.ReplaceAll(r.Text, "-", " "), " "); len(code) == 3 {
			if n, err := strconv.Atoi(code); err == nil && n >= 400 && n < 600 {
				r.Code = n
			}
		}
		for _, field := range []string{"Original-Recipient", "Final-Recipient"} {
			if a, err := address.Parse(typed(h.Text(field))); err == nil {
				r.recipients = append(r.recipients, a)
			}
		}
		return r, true
	}
	return failure{}, false
}

// typed returns what follows the type in fields such as "dns; mx.example".
func typed(value string) string {
	if _, rest, ok := strings.Cut(value, ";"); ok {
		return strings.TrimSpace(rest)
	}
	return value
}

// enhanced returns a status code of the form 5.1.1, without comments; "" for
// anything else.
func enhanced(value string) string {
	value, _, _ = strings.Cut(strings.TrimSpace(value), " ")
	parts := strings.Split(value, ".")
	if len(parts) != 3 || parts[0] != "2" && parts[0] != "4" && parts[0] != "5" {
		return ""
	}
	for _, p := range parts[1:] {
		if n, err := strconv.Atoi(p); err != nil || n < 0 || n > 999 || len(p) > 3 {
			return ""
		}
	}
	return value
}
