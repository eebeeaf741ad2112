// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/outbound"
)

// errand is all that becomes of a message: copies that are filed, and what goes
// out because of it. It is one commit: all of it happens, or nothing.
type errand struct {
	in     *Inbound
	s      *spooled
	sender string         // MAIL FROM
	own    bool           // it was sent from here: nothing of it is in doubt
	tls    bool           // its sender demands TLS wherever it goes
	utf8   bool           // it came with SMTPUTF8
	asked  outbound.Asked // by its sender
	copies []folder.Incoming
	out    []*outbound.Ready
	also   []db.Statement
	// guards, one for each that it is for, return a row while he is not suspended. more says
	// that it is for others as well, for whom there is none.
	guards []db.Statement
	more   bool
}

// errSuspended declines what is for somebody who was suspended since it was accepted.
var errSuspended = errors.New("a recipient is suspended")

// CodeSomeSuspended is the code of the fault.Unavailable for a message one of whose
// recipients was suspended while it came.
const CodeSomeSuspended = "recipient_suspended"

// suspended says why nothing was done. Where all that it is for are suspended, the
// message is refused. Else its sender comes again, and learns at RCPT who is not.
func (e *errand) suspended(ctx context.Context) error {
	for _, s := range e.guards {
		if err := e.in.db.One(ctx, s, new(db.ID)); !errors.Is(err, db.ErrNoRow) {
			e.more = true
		}
	}
	if e.more {
		return fault.New(fault.Unavailable, CodeSomeSuspended, "A recipient takes no more mail; send it again.")
	}
	return fault.New(fault.Denied, mailbox.CodeSuspended, "This mailbox takes no mail.")
}

func (i *Inbound) errand(s *spooled, sender string, own bool) *errand {
	return &errand{in: i, s: s, sender: sender, own: own}
}

// commit does it all, and returns where the copies were filed.
func (e *errand) commit(ctx context.Context) (filed []folder.Filed, err error) {
	jobs := make([]*db.Job, 0, len(e.out)+1)
	for _, r := range e.out {
		jobs = append(jobs, r.Job())
	}
	jobs = append(jobs, &db.Job{Guard: func(b *db.Batch) {
		for _, s := range e.guards {
			b.Queue(s).One(new(db.ID)).Else(errSuspended)
		}
	}, Apply: func(b *db.Batch) {
		for _, s := range e.also {
			b.Queue(s)
		}
	}})
	switch {
	case len(e.copies) > 0:
		e.copies[0].With = jobs
		filed, err = e.in.Folders.DeliverAll(ctx, e.copies)
	case len(e.out) > 0:
		err = e.in.db.Write(ctx, e.out[0].ID, db.Join(jobs...))
	default:
		e.s.blob.Discard(ctx)
	}
	for _, r := range e.out {
		if r.Settle(err) {
			e.in.Log.Info("a message goes out for one that came in", "message", r.ID, "arrival", e.s.arrival)
		}
	}
	if errors.Is(err, errSuspended) {
		e.s.blob.Discard(ctx)
		return nil, e.suspended(ctx)
	}
	return filed, err
}

// drop gives back what was taken for an errand that is not committed.
func (e *errand) drop() {
	for _, r := range e.out {
		r.Drop()
	}
}

// box is what becomes of the message at one mailbox.
type box struct {
	mailbox.Recipient
	as     []string        // the addresses by which it came
	o      *digest.Opinion // nil: there is none
	junk   bool            // it is not wanted in the inbox
	spam   bool            // nor anywhere else
	source db.ID           // the outbound_message that it is; 0 for none

	overrun bool // it is filed whether there is room or not
}

// deliver does for a mailbox what its owner wants: the message is filed, goes on
// to other addresses, is answered. filed is false if it only goes on; if it must not
// and there is no room for it, that is the error.
func (e *errand) deliver(ctx context.Context, to box) (filed bool, err error) {
	e.guards = append(e.guards, mailbox.NotSuspended(to.Mailbox))
	one, err := e.in.copyFor(ctx, e.s, to.Recipient, to.o, e.sender, to.as...)
	if err != nil {
		return false, err
	}
	one.Outbound = to.source
	if to.junk {
		one.Special = folder.Junk
	}
	wanted := one.Special != folder.Junk && !to.spam && !e.s.unwanted
	forwarded := false
	if wanted && len(to.ForwardTo) > 0 {
		if forwarded, err = e.forward(ctx, to.Recipient); err != nil {
			return false, err
		}
	}
	filed = !forwarded || to.KeepCopy
	if filed && !to.overrun && !keeps(to.Recipient) { // it was not asked for room
		if err := e.in.Mailboxes.Room(ctx, to.Mailbox, e.s.blob.Size); err != nil {
			return false, err
		}
	}
	if wanted && to.Answers {
		if err := e.answer(ctx, to.Recipient); err != nil {
			return false, err
		}
	}
	if filed {
		e.copies = append(e.copies, one)
	}
	return filed, nil
}

// maxChain is how many mailboxes may forward a message one after the other.
const maxChain = 4

// forward has the message go on to where the owner of a mailbox wants it, and
// reports whether it does. What was here before stays, and so does what must
// not be sent now, if it is kept here; else that is the error.
func (e *errand) forward(ctx context.Context, to mailbox.Recipient) (bool, error) {
	if e.s.header.Count(loopField) >= maxChain {
		return false, nil
	}
	err := e.passOn(ctx, onward{
		Route: mailbox.Route{Elsewhere: to.ForwardTo, Alias: to.Mailbox, Account: to.Account, Domain: to.Domain},
		as:    to.Address, sender: e.sender, own: e.own,
	})
	switch {
	case err == nil:
		return true, nil
	case fault.Is(err, fault.Denied), fault.Is(err, fault.Limited) && to.KeepCopy:
		e.in.Log.Info("a message is not forwarded but kept", "mailbox", to.Mailbox, "arrival", e.s.arrival, "reason", err)
		return false, nil
	}
	return false, err
}

// deliverAll delivers the message to mailboxes. Those whose place in filed is false
// have no copy. If it is for nobody else, and there is no room for it in any of them,
// which nobody knew at RCPT, that is the error; else what is accepted is filed.
func (e *errand) deliverAll(ctx context.Context, boxes []box, others bool) (filed []bool, err error) {
	filed = make([]bool, len(boxes))
	var full []int
	var why error
	for n, to := range boxes {
		if filed[n], err = e.deliver(ctx, to); noRoom(err) {
			full, why = append(full, n), err
		} else if err != nil {
			return nil, err
		}
	}
	if !others && len(full) == len(boxes) {
		return filed, why
	}
	for _, n := range full {
		boxes[n].overrun = true
		if filed[n], err = e.deliver(ctx, boxes[n]); err != nil {
			return nil, err
		}
	}
	return filed, nil
}

// keeps reports whether mail to a mailbox is filed there.
func keeps(to mailbox.Recipient) bool { return to.KeepCopy || len(to.ForwardTo) == 0 }

// placed puts where copies were filed into the places of their recipients.
func placed(which []bool, filed []folder.Filed) []folder.Filed {
	all := make([]folder.Filed, len(which))
	for n := range which {
		if which[n] && len(filed) > 0 {
			all[n], filed = filed[0], filed[1:]
		}
	}
	return all
}
