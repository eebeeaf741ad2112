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
	// maxSearchResponse is the limit for the response to a search, in bytes: ten per UID.
	maxSearchResponse = 16 << 20
	// maxFetchResponse is the limit for the response about one message, in bytes, without its text.
	maxFetchResponse = 16 << 10
	// maxHeader is how much of a header is read for the message's identity, in bytes.
	maxHeader = 64 << 10
)

// examine opens a folder for reading.
func (s *session) examine(name string) (*imap.SelectData, error) {
	defer s.conn.endCommand()
	s.conn.beginCommand(smallResponse)
	data, err := s.Select(name, &imap.SelectOptions{ReadOnly: true}).Wait()
	return data, s.wrapError(err)
}

// search returns the UIDs from low to high in ascending order. A high of 0 means *.
func (s *session) search(low, high uint32) ([]uint32, error) {
	defer s.conn.endCommand()
	s.conn.beginCommand(maxSearchResponse)
	_, err := s.UIDSearch(&imap.SearchCriteria{UID: []imap.UIDSet{{{Start: imap.UID(low), Stop: imap.UID(high)}}}}, nil).Wait()
	if err := s.wrapError(err); err != nil {
		return nil, err
	}
	var uids []uint32
	for _, r := range s.conn.searchResults() {
		// A range came from a single response, or from a list of ranges, which a source could make
		// up.
		start, stop := max(r.low, low), r.high
		if high != 0 {
			stop = min(stop, high)
		}
		if start > stop || r.low == 0 {
			continue
		}
		if uint64(stop-start) > maxSearchResponse/2 || len(uids) > maxSearchResponse/2 {
			return nil, protocolError{errTooMuchData}
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

// existing returns those of the given messages that are in the open folder, in order. Messages that
// a source doesn't answer about may have been deleted, or the source can't read them.
func (s *session) existing(uids []uint32) (there []uint32, err error) {
	if len(uids) == 0 {
		return nil, nil
	}
	s.conn.beginCommand(smallResponse)
	err = s.wrapError(s.Noop().Wait()) // so that it reports messages deleted by others
	s.conn.endCommand()
	if _, no := refusal(err); err != nil && !no {
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

// totalSize returns the size of the open folder in bytes.
func (s *session) totalSize() (sum int64, err error) {
	defer s.conn.endCommand()
	s.conn.beginCommand(smallResponse)
	s.conn.setFetchHandler(func(a *fetchResponse) {
		sum += min(a.size, 1<<32)
		s.conn.budget += 100
	})
	err = s.Fetch(imap.SeqSet{{Start: 1, Stop: 0}}, &imap.FetchOptions{RFC822Size: true}).Close()
	s.conn.setFetchHandler(nil) // later responses are unsolicited
	return sum, s.wrapError(err)
}

// fetchMetadata fetches the metadata of messages in the open folder, with their identities if ids
// is set. The result is in UID order.
func (s *session) fetchMetadata(uids []uint32, ids bool) ([]sourceMessage, error) {
	mails, err := s.fetchMetadataOnce(uids, ids)
	if err != nil {
		return nil, err
	}
	// An unsolicited flags update may have been taken for a response.
	var vague []uint32
	mails = slices.DeleteFunc(mails, func(l sourceMessage) bool {
		if !l.hasDate {
			vague = append(vague, l.uid)
		}
		return !l.hasDate
	})
	again, err := s.fetchMetadataOnce(vague, ids)
	mails = append(mails, again...)
	slices.SortFunc(mails, func(a, b sourceMessage) int { return cmp.Compare(a.uid, b.uid) })
	return mails, err
}

func (s *session) fetchMetadataOnce(uids []uint32, ids bool) ([]sourceMessage, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	defer s.conn.endCommand()
	options := &imap.FetchOptions{UID: true, Flags: true, InternalDate: true, RFC822Size: true}
	if ids {
		options.BodySection = []*imap.FetchItemBodySection{{Specifier: imap.PartSpecifierHeader, HeaderFields: []string{"Message-ID", "Date", "From", "Subject"}, Peek: true}}
	}
	var set imap.NumSet = uidSet(uids)
	expected := 0
	if ids && s.lateUIDs {
		plain, err := s.fetchMetadataOnce(uids, false)
		if err != nil || len(plain) == 0 {
			return nil, err
		}
		set, expected = seqSet(plain), len(plain)
	}
	s.conn.beginCommand(smallResponse + int64(len(uids))*maxFetchResponse)
	told := map[uint32]*sourceMessage{}
	s.conn.setFetchHandler(func(a *fetchResponse) {
		if _, asked := slices.BinarySearch(uids, a.uid); !asked {
			return
		}
		l := told[a.uid]
		if l == nil {
			l = &sourceMessage{uid: a.uid}
			told[a.uid] = l
		}
		l.merge(a)
	})
	cmd := s.Fetch(set, options)
	known := map[uint32]string{} // identities by sequence number
	for m := cmd.Next(); m != nil; m = cmd.Next() {
		for item := m.Next(); item != nil; item = m.Next() {
			if item, ok := item.(imapclient.FetchItemDataBodySection); ok && item.Literal != nil {
				text := &bodyReader{LiteralReader: item.Literal, conn: s.conn}
				known[m.SeqNum] = readIdentity(text)
				s.awaitClose(text)
			}
		}
	}
	err := cmd.Close()
	s.conn.setFetchHandler(nil) // later responses are unsolicited
	if err := s.wrapError(err); err != nil {
		return nil, err
	}
	if len(told) < expected { // a message was deleted, and the sequence numbers changed
		return nil, protocolError{errors.New("places that moved")}
	}
	var mails []sourceMessage
	for _, uid := range slices.Sorted(maps.Keys(told)) {
		l := told[uid]
		l.identity = known[l.seq]
		mails = append(mails, *l)
	}
	return mails, nil
}

// merge adds what a FETCH response says of a message. A source may send several.
func (l *sourceMessage) merge(a *fetchResponse) {
	l.seq, l.size = a.seq, max(l.size, a.size)
	if a.hasFlags {
		l.flags = a.flags
	}
	if a.hasDate {
		l.hasDate = true
		l.date, l.dateValid = parseInternalDate(a.date)
	}
}

// readIdentity returns the identity of the message with the given header.
func readIdentity(r io.Reader) string {
	_, head, err := message.ScanReader(io.LimitReader(r, maxHeader))
	if err != nil {
		return ""
	}
	return messageIdentity(head)
}

// messageIdentity returns the Message-ID. For messages without one it returns date, author and
// subject, because these messages may have the same size and internal date.
func messageIdentity(head message.Header) string {
	if id := head.MessageID(); id != "" {
		return id
	}
	return strings.Join([]string{"", head.Unfolded("Date"), head.Unfolded("From"), head.Unfolded("Subject")}, "\x00")
}

// detectLateUIDs checks, with one message of the open folder, whether the source sends the UID only
// after the text. The client library doesn't accept that as a response to UID FETCH: messages are
// then requested by sequence number.
func (s *session) detectLateUIDs(uid uint32) error {
	if s.uidOrderKnown {
		return nil
	}
	_, err := s.fetchMetadataOnce([]uint32{uid}, true)
	if _, no := refusal(err); err != nil && !no {
		return err
	}
	s.uidOrderKnown, s.lateUIDs = true, s.conn.hasLateUIDs()
	return nil
}

func seqSet(mails []sourceMessage) (set imap.SeqSet) {
	for _, l := range mails {
		set.AddNum(l.seq)
	}
	return set
}

func uidSet(uids []uint32) (set imap.UIDSet) {
	for _, uid := range uids {
		set.AddNum(imap.UID(uid))
	}
	return set
}

// errTooLarge reports that a message exceeds the size limit.
var errTooLarge = errors.New("the message is too large")

// fetchBodies fetches the texts of messages in the open folder. It calls keep with each text, in
// order of arrival; keep must read it completely or fail. It calls done when the message's response
// has ended. Their errors end the fetch and the connection. at receives the UID of the message
// being read. If keep was not called for a message, the source gave no text for it. If the source
// sends UIDs late, keep and at receive UID 0, and done may receive any message's UID.
func (s *session) fetchBodies(uids []uint32, at func(uint32), keep func(uid uint32, text imap.LiteralReader) error, done func(uid uint32) error) error {
	defer s.conn.endCommand()
	var set imap.NumSet = uidSet(uids)
	if s.lateUIDs {
		mails, err := s.fetchMetadataOnce(uids, false) // sequence numbers change
		if err != nil || len(mails) == 0 {
			return err
		}
		set = seqSet(mails)
	}
	s.conn.beginCommand(smallResponse + int64(len(uids))*maxFetchResponse)
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
				if failed != nil || item.Literal == nil || uid == 0 && !s.lateUIDs || kept || !isWholeMessage(item.Section) {
					continue
				}
				at(uid)
				text := &bodyReader{LiteralReader: item.Literal, conn: s.conn}
				if kept, failed = true, keep(uid, text); failed != nil {
					_ = s.conn.Close() // the rest need not come
					s.awaitClose(text)
				}
			}
		}
		if kept && failed == nil {
			if failed = done(uid); failed != nil {
				_ = s.conn.Close()
			}
		}
	}
	err := cmd.Close()
	if failed != nil {
		return failed
	}
	return s.wrapError(err)
}

func isWholeMessage(s *imap.FetchItemBodySection) bool {
	return s != nil && s.Specifier == imap.PartSpecifierNone && len(s.Part) == 0 && s.Partial == nil
}

// bodyReader reads a message as it arrives, of any length, for the blob store.
type bodyReader struct {
	imap.LiteralReader
	conn   *sourceConn
	broken bool
}

// awaitClose waits until the client library notices that the connection broke within a text: the
// library would otherwise read the text at the same time.
func (s *session) awaitClose(text *bodyReader) {
	if text.broken {
		_ = s.conn.Close()
		<-s.Closed()
	}
}

// Read reads a piece.
func (c *bodyReader) Read(p []byte) (int, error) {
	n, err := c.LiteralReader.Read(p)
	c.conn.addBudget(int64(n))
	c.broken = c.broken || err != nil && !errors.Is(err, io.EOF)
	return n, err
}
