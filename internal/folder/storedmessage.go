// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// A message keeps its id when it is moved or copied within its mailbox, as long as a folder shows
// it.

// StoredMessage is a message of a mailbox, with the folders that show it.
type StoredMessage struct {
	ID           db.ID
	Mailbox      db.ID
	Outbound     db.ID  // the outbound_message that it is a delivery of; 0 for none
	Thread       string // "" for none, as for a message that a client appended
	CheckResults string // as summary.CheckResults has them
	Size         int64
	Received     bool            // false for messages that a client, or a migration, added
	Summary      summary.Summary // only in lists
	Locations    []Location      // at least one, at most MaxLocations
}

// Location is a folder that shows a message.
type Location struct {
	Folder   string // its name
	UID      uint32
	Flags    Flags
	Keywords []string
	Date     time.Time // internal date
}

// MaxLocations is how many locations of a message are returned.
const MaxLocations = 20

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
	storedMessageQuery = db.SQL(`SELECT id, outbound, thread_id, check_results, size FROM message WHERE id = $1 AND mailbox = $2`)
	locationsQuery     = db.SQL(`SELECT f.message, d.name, f.uid, f.flags, f.keywords, f.internal_date
		FROM folder_message f JOIN folder d ON d.id = f.folder
		WHERE f.message ` + inList)
	messagePartsQuery = db.SQL(`SELECT blob, structure, private FROM message WHERE id = $1`)
)

// ListMessages lists messages of a mailbox, newest first. next is the id of the last message
// examined. If more is true the list continues after it, even if few messages were found. It
// returns a fault.NotFound if the folder does not exist. f must have passed Check.
func (s *Folders) ListMessages(ctx context.Context, box db.ID, f MessageFilter, page db.Page) (found []StoredMessage, more bool, next db.ID, err error) {
	var in Folder
	if f.Folder != "" {
		if in, err = s.folderByName(ctx, box, f.Folder); err != nil || in.Messages == 0 {
			return nil, false, 0, err
		}
	}
	var account db.ID
	if f.Thread != "" {
		if account, err = mailbox.AccountOf(ctx, s.DB, box); err != nil {
			return nil, false, 0, err
		}
	}
	read := func(at db.Page) ([]messageCandidate, bool, error) {
		if f.Thread != "" {
			return db.ReadPage(ctx, s.DB, listThreadCandidatesQuery, at, scanCandidate, box, in.ID, account, f.Thread)
		}
		return db.ReadPage(ctx, s.DB, listCandidatesQuery, at, scanCandidate, box, in.ID)
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

// listStored examines a few candidates of read. If they don't fill the page, it calls narrow for
// the candidates that may match, and examines only these. Without them it examines more candidates
// of read.
func (s *Folders) listStored(ctx context.Context, f MessageFilter, page db.Page, read candidateReader, narrow func(db.Page) (*candidateIDs, error)) (found []StoredMessage, more bool, next db.ID, err error) {
	l, err := newMessageLister(f, page)
	if err != nil {
		return nil, false, 0, err
	}
	found, more, next, err = l.list(min(listScanFirst, s.MaxScan), read)
	if err != nil {
		return nil, false, 0, err
	}
	if more && len(found) < l.limit {
		ids, err := narrow(l.first)
		if err != nil {
			return nil, false, 0, err
		}
		if ids != nil {
			read = func(at db.Page) ([]messageCandidate, bool, error) { return ids.readPage(ctx, s.DB, at) }
		}
		if found, more, next, err = l.list(s.MaxScan, read); err != nil {
			return nil, false, 0, err
		}
	}
	found, err = s.addLocations(ctx, found, l.backward)
	return found, more, next, err
}

// candidateReader reads a chunk of candidates, newest first, as db.ReadPage does.
type candidateReader func(db.Page) (chunk []messageCandidate, more bool, err error)

// messageLister finds one page of messages.
type messageLister struct {
	minID, maxID db.ID // ids that may match: from minID, below maxID
	limit        int
	backward     bool    // whether the list goes from older to newer messages
	first        db.Page // the first chunk
	matches      func(*messageCandidate) bool
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
func (l *messageLister) list(looks int, read candidateReader) (found []StoredMessage, more bool, next db.ID, err error) {
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

type messageCandidate struct {
	StoredMessage
	inFolder bool
	envelope []byte
}

func scanCandidate(r db.Row) (c messageCandidate, err error) {
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
func (f MessageFilter) matcher() (func(*messageCandidate) bool, error) {
	author, err := addressMatcher(f.From)
	if err != nil {
		return nil, err
	}
	recipient, err := addressMatcher(f.To)
	texts := f.texts()
	return func(c *messageCandidate) bool {
		return c.inFolder && (c.Received || !f.ReceivedOnly) && (f.Thread == "" || c.Thread == f.Thread) &&
			!slices.ContainsFunc(texts, func(t filterText) bool { return !t.matches(c.envelope) }) &&
			(f.From == "" || slices.ContainsFunc(c.Summary.From, author)) &&
			(f.To == "" || slices.ContainsFunc(c.Summary.To, recipient) || slices.ContainsFunc(c.Summary.Cc, recipient))
	}, err
}

// addLocations adds the messages' locations, and sorts the messages newest first. back is true if
// they are in the opposite order.
func (s *Folders) addLocations(ctx context.Context, found []StoredMessage, back bool) ([]StoredMessage, error) {
	all := make([]*StoredMessage, len(found))
	for i := range found {
		all[i] = &found[i]
	}
	err := s.loadLocations(ctx, all)
	found = slices.DeleteFunc(found, func(k StoredMessage) bool { return len(k.Locations) == 0 }) // expunged just now
	if back {
		slices.Reverse(found)
	}
	return found, err
}

// Message returns a message of a mailbox, without its Summary. It returns a fault.NotFound if no
// folder shows it.
func (s *Folders) Message(ctx context.Context, mailbox, id db.ID) (StoredMessage, error) {
	k := StoredMessage{Mailbox: mailbox}
	err := s.DB.One(ctx, storedMessageQuery.With(id, mailbox), &k.ID, &k.Outbound, &k.Thread, &k.CheckResults, &k.Size)
	if err == nil {
		err = s.loadLocations(ctx, []*StoredMessage{&k})
	}
	if errors.Is(err, db.ErrNoRow) || err == nil && len(k.Locations) == 0 {
		err = fault.New(fault.NotFound, "not_found", "There is no message with this id.")
	}
	return k, err
}

func (s *Folders) loadLocations(ctx context.Context, all []*StoredMessage) error {
	for some := range slices.Chunk(all, listSize) {
		byID := map[db.ID]*StoredMessage{}
		for _, k := range some {
			byID[k.ID] = k
		}
		err := s.DB.Each(ctx, locationsQuery.With(listArgs(len(some), func(i int) any { return some[i].ID })...), func(r db.Row) error {
			var id db.ID
			var p Location
			var flags, date int64
			var keywords string
			if err := r.Scan(&id, &p.Folder, &p.UID, &flags, &keywords, &date); err != nil {
				return err
			}
			p.Flags, p.Keywords, p.Date = Flags(flags), strings.Fields(keywords), db.Time(date)
			if k := byID[id]; len(k.Locations) < MaxLocations {
				k.Locations = append(k.Locations, p)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, k := range some {
			slices.SortFunc(k.Locations, func(a, b Location) int { return cmp.Or(cmp.Compare(a.Folder, b.Folder), cmp.Compare(a.UID, b.UID)) })
		}
	}
	return nil
}

// OpenParts is the function OpenParts for the messages of these Folders.
func (s *Folders) OpenParts(ctx context.Context, id db.ID) (*message.Index, *blob.Reader, error) {
	return OpenParts(ctx, s.Blobs, id)
}

// OpenParts opens the bytes of a message with the index of its parts. It returns a fault.NotFound if
// they are gone, and a fault.Denied if the message is private. The caller must Close the reader.
func OpenParts(ctx context.Context, blobs *blob.Store, id db.ID) (*message.Index, *blob.Reader, error) {
	var at db.ID
	var structure []byte
	var private bool
	err := blobs.DB.One(ctx, messagePartsQuery.With(id), &at, &structure, &private)
	if errors.Is(err, db.ErrNoRow) {
		return nil, nil, messageExpungedError()
	}
	if err != nil {
		return nil, nil, err
	}
	if private {
		return nil, nil, privateMessageError()
	}
	r, err := openBlob(ctx, blobs, id, at)
	if err != nil {
		return nil, nil, err
	}
	index, err := decodeIndex(r, structure)
	if err != nil {
		_ = r.Close() // nothing was written
		return nil, nil, fmt.Errorf("scanning message %s: %w", id, err)
	}
	return index, r, nil
}

// decodeIndex decodes the stored index of a message. It computes the index again if the stored one
// can't be decoded or belongs to other bytes.
func decodeIndex(r *blob.Reader, structure []byte) (*message.Index, error) {
	if index := message.DecodeIndex(structure, r.Size()); index != nil {
		return index, nil
	}
	index, _, err := message.ScanReader(r.All())
	return index, err
}

// CodeMessageGone is the fault code for a message that was expunged meanwhile.
const CodeMessageGone = "message_gone"

func messageExpungedError() error {
	return fault.New(fault.NotFound, CodeMessageGone, "The message was expunged.")
}

// privateMessageError is returned to callers that read messages without the mailbox's own
// credentials.
func privateMessageError() error {
	return fault.New(fault.Denied, "service_message", "The service has written this to its recipient alone: a mail program shows it.")
}

// openBlob opens the bytes of a message that existed a moment ago.
func openBlob(ctx context.Context, blobs *blob.Store, message, id db.ID) (r *blob.Reader, err error) {
	b, err := blobs.Load(ctx, id)
	if errors.Is(err, blob.ErrNotExist) {
		switch gone := blobs.DB.One(ctx, messagePartsQuery.With(message), new(db.ID), new([]byte), new(bool)); {
		case errors.Is(gone, db.ErrNoRow):
			return nil, messageExpungedError()
		case gone != nil:
			return nil, gone
		}
	}
	if err == nil {
		r, err = b.Open(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("message %s: %w", message, err)
	}
	return r, nil
}
