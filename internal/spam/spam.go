// SPDX-License-Identifier: Apache-2.0

// Package spam judges what a message is about, where mailauth judges who sent
// it: a virus scanner (clamd) and a spam filter (rspamd) are asked where the
// operator has them; without, a filter of our own weighs what the accounts
// taught it, block lists and the results of authentication.
package spam

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// Message is a message from outside that is to be judged. Its bytes are kept
// already; nothing of it changes while it is judged.
type Message struct {
	ID           string     // as our Received field tells it
	Client       netip.Addr // zero if unknown
	Helo         string
	ClientName   string   // of the client, confirmed by DNS; "" for none
	From         string   // MAIL FROM; "" for the null sender
	To           []string // one address for each recipient
	Accounts     []db.ID  // whose mailboxes these are, side by side with To
	CheckResults summary.CheckResults
	Header       message.Header
	Index        *message.Index
	Size         int64
	// Open reads the message as it came.
	Open func(context.Context) (*blob.Reader, error)
}

// The codes of Judge's faults.
const (
	CodeVirus       = "virus"            // fault.Denied: never to be filed
	CodeUnavailable = "filter_down"      // fault.Unavailable: it could not be judged
	CodeTooLarge    = "too_big_to_judge" // fault.TooLarge: the scanner does not take it
)

// Filter judges messages. Its fields are set before its first use; it is safe
// for use by many goroutines.
type Filter struct {
	Rspamd  *Rspamd        // nil: our own filter judges
	Clamav  *Clamav        // nil: nothing looks for viruses
	Builtin *BuiltinFilter // what judges without rspamd, or when that can't; nil: nothing does
	// FailClosed makes a backend that does not answer a reason to defer mail. Else
	// it is taken in without its judgement.
	FailClosed bool
	Log        *slog.Logger
}

// Check returns what a message is found to be for each of its recipients, in
// their order; nil if nothing judges spam. It fails with one of the codes above.
func (f *Filter) Check(ctx context.Context, m *Message) ([]summary.SpamResult, error) {
	var opinions []summary.SpamResult
	var clean, judged error
	var asked sync.WaitGroup
	if f.Clamav != nil {
		asked.Go(func() { clean = f.scan(ctx, m) })
	}
	opinions, judged = f.checkSpam(ctx, m)
	asked.Wait()
	if err := errors.Join(clean, judged); err != nil {
		if clean != nil {
			return nil, clean
		}
		return nil, judged
	}
	return opinions, nil
}

// scan looks for viruses.
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

// checkSpam asks rspamd, or else our own filter.
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

// backendError says what a backend's trouble means for the message.
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

// timeoutOr is the time that a backend has.
func timeoutOr(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}
