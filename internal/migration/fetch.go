// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/internal/message"
)

const (
	// searching bounds the answer to a search, in bytes: ten for each UID.
	searching = 16 << 20
	// perMessage is what the answer about one message may have, in bytes,
	// beside its text.
	perMessage = 16 << 10
	// maxHead is how much of a head is read for its identity.
	maxHead = 64 << 10
)

// examine opens a folder for reading.
func (s *source) examine(name string) (*imap.SelectData, error) {
	defer s.line.rest()
	s.line.ask(small)
	data, err := s.Select(name, &imap.SelectOptions{ReadOnly: true}).Wait()
	return data, s.did(err)
}

// search returns the UIDs from low to high, which is * if it is 0, in order.
func (s *source) search(low, high uint32) ([]uint32, error) {
	defer s.line.rest()
	s.line.ask(searching)
	_, err := s.UIDSearch(&imap.SearchCriteria{UID: []imap.UIDSet{{{Start: imap.UID(low), Stop: imap.UID(high)}}}}, nil).Wait()
	if err := s.did(err); err != nil {
		return nil, err
	}
	var uids []uint32
	for _, r := range s.line.results() {
		// A range is as long as its list was, or came from a list of ranges,
		// which a source could make up.
		start, stop := max(r.low, low), r.high
		if high != 0 {
			stop = min(stop, high)
		}
		if start > stop || r.low == 0 {
			continue
		}
		if uint64(stop-start) > searching/2 || len(uids) > searching/2 {
			return nil, garbled{errTooMuch}
		}
		for uid := start; ; uid++ {
			uids = append(uids, uid)
			if uid == stop {
				break
			}
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}

// still returns those of some messages, in order, that are in the open folder.
// What a source does not answer about may have been deleted, or be one that it
// can't read.
func (s *source) still(uids []uint32) (there []uint32, err error) {
	if len(uids) == 0 {
		return nil, nil
	}
	s.line.ask(small)
	err = s.did(s.Noop().Wait()) // then it knows of what others have deleted
	s.line.rest()
	if _, no := refused(err); err != nil && !no {
		return nil, err
	}
	found, err := s.search(uids[0], uids[len(uids)-1])
	for _, uid := range found {
		if _, asked := slices.BinarySearch(uids, uid); asked {
			there = append(there, uid)
		}
	}
	return there, err
}

// weigh returns how many bytes the open folder has.
func (s *source) weigh() (sum int64, err error) {
	defer s.line.rest()
	s.line.ask(small)
	s.line.listen(func(a *answer) {
		sum += min(a.size, 1<<32)
		s.line.budget += 100
	})
	err = s.Fetch(imap.SeqSet{{Start: 1, Stop: 0}}, &imap.FetchOptions{RFC822Size: true}).Close()
	s.line.listen(nil) // what comes now is no answer
	return sum, s.did(err)
}

// describe asks about messages of the open folder, with their identities if
// these are wanted. The letters are in the order of their UIDs.
func (s *source) describe(uids []uint32, ids bool) ([]letter, error) {
	letters, err := s.ask(uids, ids)
	if err != nil {
		return nil, err
	}
	// News of flags may have been taken for an answer.
	var vague []uint32
	letters = slices.DeleteFunc(letters, func(l letter) bool {
		if !l.dated {
			vague = append(vague, l.uid)
		}
		return !l.dated
	})
	again, err := s.ask(vague, ids)
	letters = append(letters, again...)
	slices.SortFunc(letters, func(a, b letter) int { return cmp.Compare(a.uid, b.uid) })
	return letters, err
}

func (s *source) ask(uids []uint32, ids bool) ([]letter, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	defer s.line.rest()
	options := &imap.FetchOptions{UID: true, Flags: true, InternalDate: true, RFC822Size: true}
	if ids {
		options.BodySection = []*imap.FetchItemBodySection{{Specifier: imap.PartSpecifierHeader, HeaderFields: []string{"Message-ID", "Date", "From", "Subject"}, Peek: true}}
	}
	var set imap.NumSet = setOf(uids)
	expected := 0
	if ids && s.late {
		plain, err := s.ask(uids, false)
		if err != nil || len(plain) == 0 {
			return nil, err
		}
		set, expected = placesOf(plain), len(plain)
	}
	s.line.ask(small + int64(len(uids))*perMessage)
	told := map[uint32]*letter{}
	s.line.listen(func(a *answer) {
		if _, asked := slices.BinarySearch(uids, a.uid); !asked {
			return
		}
		l := told[a.uid]
		if l == nil {
			l = &letter{uid: a.uid}
			told[a.uid] = l
		}
		l.add(a)
	})
	cmd := s.Fetch(set, options)
	known := map[uint32]string{} // identities by place
	for m := cmd.Next(); m != nil; m = cmd.Next() {
		for item := m.Next(); item != nil; item = m.Next() {
			if item, ok := item.(imapclient.FetchItemDataBodySection); ok && item.Literal != nil {
				text := &counted{LiteralReader: item.Literal, line: s.line}
				known[m.SeqNum] = identityOf(text)
				s.left(text)
			}
		}
	}
	err := cmd.Close()
	s.line.listen(nil) // what comes now is no answer
	if err := s.did(err); err != nil {
		return nil, err
	}
	if len(told) < expected { // another was deleted, and the places moved
		return nil, garbled{errors.New("places that moved")}
	}
	var letters []letter
	for _, uid := range slices.Sorted(maps.Keys(told)) {
		l := told[uid]
		l.id = known[l.place]
		letters = append(letters, *l)
	}
	return letters, nil
}

// add notes what a source says of a message, perhaps not all at once.
func (l *letter) add(a *answer) {
	l.place, l.size = a.place, max(l.size, a.size)
	if a.flagged {
		l.flags = a.flags
	}
	if a.dated {
		l.dated = true
		l.date, l.exact = internalDate(a.date)
	}
}

// identityOf reads the identity of the message that a head belongs to.
func identityOf(r io.Reader) string {
	_, head, err := message.ScanReader(io.LimitReader(r, maxHead))
	if err != nil {
		return ""
	}
	return identity(head)
}

// identity is the Message-ID. Messages without one may well have the same size
// and date: of those it is what tells them apart for people.
func identity(head message.Header) string {
	if id := head.MessageID(); id != "" {
		return id
	}
	return strings.Join([]string{"", head.Text("Date"), head.Text("From"), head.Text("Subject")}, "\x00")
}

// order finds out, by a message of the open folder, whether the source says only
// after a text whose it is. The client library takes that for no answer to a
// UID FETCH: then messages are asked for by their places.
func (s *source) order(uid uint32) error {
	if s.ordered {
		return nil
	}
	_, err := s.ask([]uint32{uid}, true)
	if _, no := refused(err); err != nil && !no {
		return err
	}
	s.ordered, s.late = true, s.line.isLate()
	return nil
}

func placesOf(letters []letter) (set imap.SeqSet) {
	for _, l := range letters {
		set.AddNum(l.place)
	}
	return set
}

func setOf(uids []uint32) (set imap.UIDSet) {
	for _, uid := range uids {
		set.AddNum(imap.UID(uid))
	}
	return set
}

// errOver says that a message is larger than it may be.
var errOver = errors.New("the message is too large")

// texts fetches the texts of messages of the open folder. keep is called with
// each, in the order in which they come, and must read it whole, or fail; done
// when its message has ended. Their errors end the fetching and the connection.
// at is told which message is being read. What keep was not called for, the
// source gave no text of. If the source is late, keep and at get 0 for a UID, and
// done gets that of any message.
func (s *source) texts(uids []uint32, at func(uint32), keep func(uid uint32, text imap.LiteralReader) error, done func(uid uint32) error) error {
	defer s.line.rest()
	var set imap.NumSet = setOf(uids)
	if s.late {
		letters, err := s.ask(uids, false) // places move
		if err != nil || len(letters) == 0 {
			return err
		}
		set = placesOf(letters)
	}
	s.line.ask(small + int64(len(uids))*perMessage)
	cmd := s.Fetch(set, &imap.FetchOptions{UID: true, BodySection: []*imap.FetchItemBodySection{{Peek: true}}})
	var failed error
	for m := cmd.Next(); m != nil; m = cmd.Next() {
		var uid uint32
		kept := false
		for item := m.Next(); item != nil; item = m.Next() {
			switch item := item.(type) {
			case imapclient.FetchItemDataUID:
				uid = uint32(item.UID)
			case imapclient.FetchItemDataBodySection:
				if failed != nil || item.Literal == nil || uid == 0 && !s.late || kept || !whole(item.Section) {
					continue
				}
				at(uid)
				text := &counted{LiteralReader: item.Literal, line: s.line}
				if kept, failed = true, keep(uid, text); failed != nil {
					_ = s.line.Close() // what is left need not come
					s.left(text)
				}
			}
		}
		if kept && failed == nil {
			if failed = done(uid); failed != nil {
				_ = s.line.Close()
			}
		}
	}
	err := cmd.Close()
	if failed != nil {
		return failed
	}
	return s.did(err)
}

func whole(s *imap.FetchItemBodySection) bool {
	return s != nil && s.Specifier == imap.PartSpecifierNone && len(s.Part) == 0 && s.Partial == nil
}

// counted is a message as it comes, which goes on to the blob store: it may have
// any length.
type counted struct {
	imap.LiteralReader
	line   *line
	broken bool
}

// left waits for the client library to notice that the line broke within a text:
// it would read that once more, beside its own reading.
func (s *source) left(text *counted) {
	if text.broken {
		_ = s.line.Close()
		<-s.Closed()
	}
}

// Read reads a piece.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.LiteralReader.Read(p)
	c.line.allow(int64(n))
	c.broken = c.broken || err != nil && !errors.Is(err, io.EOF)
	return n, err
}
