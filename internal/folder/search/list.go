// SPDX-License-Identifier: Apache-2.0

package search

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// MessageFilter selects messages; zero fields don't restrict the result.
type MessageFilter struct {
	Folder       string    // a folder that shows them
	Since        time.Time // received at this time or later
	Until        time.Time // received before
	From         string    // an author's address, or its domain; in any case
	To           string    // a recipient's address in the header, or its domain; in any case
	Subject      string    // a substring of the subject, in any case
	Words        []string  // each a substring of the subject, in any case
	Thread       string    // the thread that they are in; only received messages have one
	ReceivedOnly bool      // received messages only
}

// Limits of the work for one page of messages.
const (
	listScanFirst = 200 // messages examined before an index is asked
	listChunk     = 100
)

// maxFilterText limits the texts of a filter, in bytes.
const maxFilterText = 1000

// candidateColumns are the columns that a candidate is scanned from, before its last. They have
// only as much of an envelope as honest senders need.
const candidateColumns = `id, mailbox, account, outbound, thread_id, check_results, size, message_id, SUBSTR(envelope, 1, 32768)`

// receivedColumns are those of a candidate that any folder may show.
const receivedColumns = candidateColumns + `, COALESCE((SELECT 1 FROM folder_message f WHERE f.message = m.id LIMIT 1), 0)`

// listColumns are the columns of a candidate that a folder may show: any, or $4. With EXISTS,
// PostgreSQL might read all folders at once if it estimates that they are few.
const listColumns = candidateColumns + `,
	COALESCE((SELECT 1 FROM folder_message f JOIN folder d ON d.id = f.folder
		WHERE f.message = m.id AND (CAST($4 AS BIGINT) = 0 OR f.folder = $4) LIMIT 1), 0)`

var (
	listCandidatesQuery = db.PagedSQL(`SELECT ` + listColumns + `
		FROM message m WHERE mailbox = $1 AND {page}`)
	listThreadCandidatesQuery = db.PagedSQL(`SELECT ` + listColumns + `
		FROM message m WHERE account = $5 AND thread_id = $6 AND thread_id <> '' AND mailbox + 0 = $1 AND {page}`)
	listReceivedQuery = db.PagedSQL(`SELECT ` + receivedColumns + `
		FROM message m WHERE account = $1 AND account <> 0 AND {page}`)
	listReceivedThreadQuery = db.PagedSQL(`SELECT ` + receivedColumns + `
		FROM message m WHERE account = $1 AND thread_id = $4 AND thread_id <> '' AND {page}`)
)

// ListMessages lists messages of a mailbox, newest first. next is the id of the last message
// examined. If more is true the list continues after it, even if few messages were found. It
// returns a fault.NotFound if the folder does not exist. f must have passed Check.
func (s *Searcher) ListMessages(ctx context.Context, box db.ID, f MessageFilter, page db.Page) (found []folder.StoredMessage, more bool, next db.ID, err error) {
	var in folder.Folder
	if f.Folder != "" {
		if in, err = s.folders.Status(ctx, box, f.Folder); err != nil || in.Messages == 0 {
			return nil, false, 0, err
		}
	}
	var account db.ID
	if f.Thread != "" {
		if account, err = mailbox.AccountOf(ctx, s.folders.DB, box); err != nil {
			return nil, false, 0, err
		}
	}
	read := func(at db.Page) ([]listCandidate, bool, error) {
		if f.Thread != "" {
			return db.ReadPage(ctx, s.folders.DB, listThreadCandidatesQuery, at, scanCandidate, box, in.ID, account, f.Thread)
		}
		return db.ReadPage(ctx, s.folders.DB, listCandidatesQuery, at, scanCandidate, box, in.ID)
	}
	return s.listStored(ctx, f, page, read, func(at db.Page) (*candidateIDs, error) {
		ids, err := s.candidatesByIndex(ctx, []db.ID{box}, f)
		if err == nil && ids == nil && in.ID != 0 && f.Thread == "" {
			ids, err = s.candidatesByFolder(ctx, in.ID, at)
		}
		if ids != nil {
			ids.statement = func(some []any) db.Statement {
				return candidatesByIDQuery.With(append(some, box, in.ID)...)
			}
		}
		return ids, err
	})
}

// maxIndexMailboxes is for how many mailboxes of an account the index is asked, for one page of
// received mail.
const maxIndexMailboxes = 100

// ListReceived lists the received mail in the mailboxes of an account, as ListMessages does for one
// mailbox. A deleted mailbox that can still be restored is included. It ignores f.Folder.
func (s *Searcher) ListReceived(ctx context.Context, account db.ID, f MessageFilter, page db.Page) (found []folder.StoredMessage, more bool, next db.ID, err error) {
	read := func(at db.Page) ([]listCandidate, bool, error) {
		if f.Thread != "" {
			return db.ReadPage(ctx, s.folders.DB, listReceivedThreadQuery, at, scanCandidate, account, f.Thread)
		}
		return db.ReadPage(ctx, s.folders.DB, listReceivedQuery, at, scanCandidate, account)
	}
	return s.listStored(ctx, f, page, read, func(db.Page) (*candidateIDs, error) {
		boxes, err := mailbox.IDsOf(ctx, s.folders.DB, account, maxIndexMailboxes+1)
		if err != nil || len(boxes) > maxIndexMailboxes {
			return nil, err
		}
		ids, err := s.candidatesByIndex(ctx, boxes, f)
		if ids != nil {
			ids.statement = func(some []any) db.Statement {
				return receivedByIDQuery.With(append(some, account)...)
			}
		}
		return ids, err
	})
}

// listStored examines a few candidates of read. If they don't fill the page, it calls prefilter for
// the candidates that may match, and examines only these. Without them it examines more candidates
// of read.
func (s *Searcher) listStored(ctx context.Context, f MessageFilter, page db.Page, read candidateReader, prefilter func(db.Page) (*candidateIDs, error)) (found []folder.StoredMessage, more bool, next db.ID, err error) {
	l, err := newMessageLister(f, page)
	if err != nil {
		return nil, false, 0, err
	}
	found, more, next, err = l.list(min(listScanFirst, s.MaxScan), read)
	if err != nil {
		return nil, false, 0, err
	}
	if more && len(found) < l.limit {
		ids, err := prefilter(l.first)
		if err != nil {
			return nil, false, 0, err
		}
		if ids != nil {
			read = func(at db.Page) ([]listCandidate, bool, error) { return ids.readPage(ctx, s.folders.DB, at) }
		}
		if found, more, next, err = l.list(s.MaxScan, read); err != nil {
			return nil, false, 0, err
		}
	}
	found, err = s.addLocations(ctx, found, l.backward)
	return found, more, next, err
}

// candidateReader reads a chunk of candidates, newest first, as db.ReadPage does.
type candidateReader func(db.Page) (chunk []listCandidate, more bool, err error)

// messageLister finds one page of messages.
type messageLister struct {
	minID, maxID db.ID // ids that may match: from minID, below maxID
	limit        int
	backward     bool    // whether the list goes from older to newer messages
	first        db.Page // the first chunk
	matches      func(*listCandidate) bool
}

func newMessageLister(f MessageFilter, page db.Page) (*messageLister, error) {
	l := &messageLister{maxID: math.MaxInt64, limit: cmp.Or(page.Limit, db.DefaultPageSize), backward: page.After == 0 && page.Before != 0}
	if !f.Since.IsZero() {
		l.minID = db.MinIDAt(f.Since)
	}
	if !f.Until.IsZero() {
		l.maxID = db.MinIDAt(f.Until)
	}
	l.first = db.Page{After: page.After, Before: page.Before, Limit: listChunk}
	switch {
	case l.backward:
		l.first.Before = max(page.Before, l.minID-1)
	case page.After == 0 || page.After > l.maxID:
		l.first.After = l.maxID
	}
	var err error
	l.matches, err = f.matcher()
	return l, err
}

// list reads candidates until the page is full or it has examined looks messages. It returns
// messages in the order in which it found them.
func (l *messageLister) list(looks int, read candidateReader) (found []folder.StoredMessage, more bool, next db.ID, err error) {
	at := l.first
	for looked := 0; ; {
		chunk, rest, err := read(at)
		if err != nil {
			return nil, false, 0, err
		}
		if l.backward { // chunks are newest first in both directions
			slices.Reverse(chunk)
		}
		for i := range chunk {
			c := &chunk[i]
			if c.ID < l.minID && !l.backward || c.ID >= l.maxID && l.backward {
				return found, false, next, nil
			}
			fits := c.ID >= l.minID && c.ID < l.maxID && l.matches(c)
			if fits && len(found) == l.limit || looked == looks {
				return found, true, next, nil
			}
			looked++
			next = c.ID
			if fits {
				found = append(found, c.StoredMessage)
			}
		}
		if !rest {
			return found, false, next, nil
		}
		if l.backward {
			at.Before = next
		} else {
			at.After = next
		}
	}
}

type listCandidate struct {
	folder.StoredMessage
	inFolder bool
	envelope []byte
}

func scanCandidate(r db.Row) (c listCandidate, err error) {
	var messageID string
	var there int
	var account db.ID
	if err := r.Scan(&c.ID, &c.Mailbox, &account, &c.Outbound, &c.Thread, &c.CheckResults, &c.Size, &messageID, &c.envelope, &there); err != nil {
		return c, err
	}
	c.Received = account != 0
	if c.inFolder = there == 1; c.inFolder {
		envelope := c.envelope
		date, _ := message.ParseDate(message.EnvelopeText(envelope, message.EnvelopeDate))
		c.Summary = summary.New(messageID, message.EnvelopeAddresses(envelope, message.EnvelopeFrom), message.EnvelopeAddresses(envelope, message.EnvelopeTo), message.EnvelopeAddresses(envelope, message.EnvelopeCc),
			message.EnvelopeText(envelope, message.EnvelopeSubject), date)
	}
	return c, nil
}

// Check returns all errors of a filter at once.
func (f MessageFilter) Check() error {
	var bad fault.FieldErrors
	for _, text := range []struct{ field, text string }{{"from", f.From}, {"to", f.To}, {"subject", f.Subject}} {
		if len(text.text) > maxFilterText {
			bad.Add(text.field, "too_long", "This may have %d bytes.", maxFilterText)
		}
	}
	for _, text := range []struct{ field, text string }{{"from", f.From}, {"to", f.To}} {
		if _, err := addressMatcher(text.text); err != nil && len(text.text) <= maxFilterText {
			bad.Add(text.field, "invalid_address", "Give an address such as you@example.com, or a domain.")
		}
	}
	return bad.Err()
}

// addressMatcher returns a function that reports whether an address matches text, which is an
// address or a domain. All match "".
func addressMatcher(text string) (func(summary.Address) bool, error) {
	if text == "" {
		return func(summary.Address) bool { return true }, nil
	}
	if !strings.Contains(text, "@") {
		name, err := address.ParseMailDomain(text)
		return func(p summary.Address) bool {
			a, err := address.Parse(p.Email)
			return err == nil && a.Domain == name
		}, err
	}
	want, err := address.Parse(text)
	return func(p summary.Address) bool {
		a, err := address.Parse(p.Email)
		return err == nil && a.Key() == want.Key()
	}, err
}

// matcher returns a function that reports whether a message matches the filter.
func (f MessageFilter) matcher() (func(*listCandidate) bool, error) {
	author, err := addressMatcher(f.From)
	if err != nil {
		return nil, err
	}
	recipient, err := addressMatcher(f.To)
	texts := f.texts()
	return func(c *listCandidate) bool {
		return c.inFolder && (c.Received || !f.ReceivedOnly) && (f.Thread == "" || c.Thread == f.Thread) &&
			!slices.ContainsFunc(texts, func(t filterText) bool { return !t.matches(c.envelope) }) &&
			(f.From == "" || slices.ContainsFunc(c.Summary.From, author)) &&
			(f.To == "" || slices.ContainsFunc(c.Summary.To, recipient) || slices.ContainsFunc(c.Summary.Cc, recipient))
	}, err
}

// addLocations adds the messages' locations, and sorts the messages newest first. back is true if
// they are in the opposite order.
func (s *Searcher) addLocations(ctx context.Context, found []folder.StoredMessage, back bool) ([]folder.StoredMessage, error) {
	all := make([]*folder.StoredMessage, len(found))
	for i := range found {
		all[i] = &found[i]
	}
	err := s.folders.LoadLocations(ctx, all)
	found = slices.DeleteFunc(found, func(k folder.StoredMessage) bool { return len(k.Locations) == 0 }) // expunged just now
	if back {
		slices.Reverse(found)
	}
	return found, err
}
