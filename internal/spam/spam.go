// SPDX-License-Identifier: Apache-2.0

// Package spam checks the content of messages, while mailauth checks their senders. It calls a
// virus scanner (clamd) and a spam filter (rspamd) if they are configured. Without rspamd, a
// built-in filter uses the accounts' training, block lists and authentication results.
package spam

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// Message is a received message to check. Its bytes are already stored. It must not change during
// the check.
type Message struct {
	ID           string     // id in our Received field
	Client       netip.Addr // zero if unknown
	Helo         string
	ClientName   string   // confirmed by DNS; "" for none
	From         string   // MAIL FROM; "" for the null sender
	To           []string // one address for each recipient
	Accounts     []db.ID  // accounts of the mailboxes, parallel to To
	CheckResults summary.CheckResults
	Header       message.Header
	Index        *message.Structure
	Size         int64
	// Open opens the original message.
	Open func(context.Context) (*blob.Reader, error)
}

// Codes of Check's errors.
const (
	CodeVirus       = "virus"            // fault.Denied: never filed
	CodeUnavailable = "filter_down"      // fault.Unavailable: the check failed
	CodeTooLarge    = "too_big_to_judge" // fault.TooLarge: too large for the scanner
)

// Filter checks messages. Set its fields before its first use. It is safe for concurrent use.
type Filter struct {
	Rspamd  *Rspamd        // nil: the built-in filter is used
	Clamav  *Clamav        // nil: no virus scanner
	Builtin *BuiltinFilter // used without rspamd, or when rspamd fails; nil: none
	// FailClosed defers mail if a backend doesn't answer. Otherwise the mail is accepted without
	// that backend's result.
	FailClosed bool
	Log        *slog.Logger
}

// Check returns a result for each recipient, in their order, or nil if there is no spam filter. It
// fails with one of the codes above.
func (f *Filter) Check(ctx context.Context, m *Message) ([]summary.SpamResult, error) {
	var opinions []summary.SpamResult
	var clean, verified error
	var asked sync.WaitGroup
	if f.Clamav != nil {
		asked.Go(func() { clean = f.scan(ctx, m) })
	}
	opinions, verified = f.checkSpam(ctx, m)
	asked.Wait()
	if err := cmp.Or(clean, verified); err != nil {
		return nil, err
	}
	return opinions, nil
}

// scan scans for viruses.
func (f *Filter) scan(ctx context.Context, m *Message) error {
	virus, err := f.Clamav.Scan(ctx, m)
	switch {
	case virus != "":
		f.Log.Info("a message with a virus was refused", "message", m.ID, "virus", virus, "client", m.Client)
		return fault.New(fault.Denied, CodeVirus, "The message carries a virus: %s", virus)
	case err == nil || errors.Is(err, context.Canceled) && ctx.Err() == nil:
		return nil
	case errors.Is(err, errTooBig):
		f.Log.Warn("a message is too large for the virus scanner", "message", m.ID, "size", m.Size)
		if f.FailClosed {
			return fault.New(fault.TooLarge, CodeTooLarge, "The message is too large to be searched for viruses")
		}
		return nil
	}
	return f.backendError("clamav", m, err)
}

// checkSpam calls rspamd, or else the built-in filter.
func (f *Filter) checkSpam(ctx context.Context, m *Message) ([]summary.SpamResult, error) {
	if f.Rspamd != nil && m.Size <= maxRspamdMessage {
		o, err := f.Rspamd.Check(ctx, m)
		if err == nil {
			return slices.Repeat([]summary.SpamResult{o}, len(m.To)), nil
		}
		if err := f.backendError("rspamd", m, err); err != nil {
			return nil, err
		}
	}
	if f.Builtin == nil {
		return nil, nil
	}
	return f.Builtin.Check(ctx, m), nil
}

// backendError returns the error for the message if a backend fails, or nil to continue without it.
func (f *Filter) backendError(backend string, m *Message, err error) error {
	if errors.Is(err, errCircuitOpen) {
		f.Log.Debug("a filter is not asked while it rests", "filter", backend, "message", m.ID)
	} else {
		f.Log.Warn("a filter does not answer", "filter", backend, "message", m.ID, "closed", f.FailClosed, "error", err)
	}
	if !f.FailClosed {
		return nil
	}
	return fault.Wrap(err, fault.Unavailable, CodeUnavailable, "The message can't be judged at the moment; try again later")
}
