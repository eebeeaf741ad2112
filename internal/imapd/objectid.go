// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// Object ids (RFC 8474) are row ids with a letter before them. A message keeps its id when it is
// copied or moved within its mailbox, a folder when it is renamed.
const (
	mailboxPrefix = "F"
	emailPrefix   = "M"
	threadPrefix  = "T"
	// The id of a thread that an application named with characters invalid in an object id is in
	// base64.
	encodedThreadPrefix = "B"
	// A message without a thread, or in a thread whose name is too long for an id, has a thread of
	// its own.
	singleThreadPrefix = "S"

	maxObjectID = 255
)

func mailboxID(id db.ID) string { return mailboxPrefix + id.String() }

func emailID(id db.ID) string { return emailPrefix + id.String() }

func threadID(r *folder.MessageRow) string {
	id := threadPrefix + r.Thread
	if strings.ContainsFunc(r.Thread, isInvalidIDChar) {
		id = encodedThreadPrefix + base64.RawURLEncoding.EncodeToString([]byte(r.Thread))
	}
	if r.Thread == "" || len(id) > maxObjectID {
		id = singleThreadPrefix + r.Message.String()
	}
	return id
}

func isInvalidIDChar(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
}

// objectCriterion builds the tests EMAILID and THREADID.
func (p *criteriaBuilder) objectCriterion(c search.Criterion, k *wire.SearchKey) (search.Criterion, error) {
	c.Test, c.Text = search.HasUID, ""
	var err error
	c.UIDs, err = p.objectUIDs(k)
	if p.remaining -= len(c.UIDs); err == nil && p.remaining < 0 {
		err = no(wire.CodeLimit, "The search names too many messages.")
	}
	return c, err
}

// objectUIDs returns the UIDs of the messages with an id; an invalid id matches no message.
func (p *criteriaBuilder) objectUIDs(k *wire.SearchKey) ([]uint32, error) {
	kind, id := k.Text[:min(1, len(k.Text))], k.Text[min(1, len(k.Text)):]
	switch {
	case k.Op == wire.SearchEmailID && kind == emailPrefix, k.Op == wire.SearchThreadID && kind == singleThreadPrefix:
		message, err := db.ParseID(id)
		if err != nil {
			return nil, nil //nolint:nilerr // nothing has that id
		}
		if kind == singleThreadPrefix {
			return p.singleThreadUIDs(message, k.Text)
		}
		return p.session.view.MessageUIDs(p.session.ctx(), message)
	case k.Op == wire.SearchThreadID && kind == encodedThreadPrefix:
		name, err := base64.RawURLEncoding.DecodeString(id)
		// PostgreSQL returns an error for invalid text.
		if err != nil || !strings.ContainsFunc(string(name), isInvalidIDChar) || !utf8.Valid(name) || slices.Contains(name, 0) {
			return nil, nil //nolint:nilerr // nothing has that id
		}
		return p.session.view.ThreadUIDs(p.session.ctx(), p.session.mailbox.Account, string(name))
	case k.Op == wire.SearchThreadID && kind == threadPrefix && !strings.ContainsFunc(id, isInvalidIDChar):
		return p.session.view.ThreadUIDs(p.session.ctx(), p.session.mailbox.Account, id)
	}
	return nil, nil
}

// singleThreadUIDs returns the UIDs of a message if it is alone in the thread with this id.
func (p *criteriaBuilder) singleThreadUIDs(message db.ID, id string) ([]uint32, error) {
	uids, err := p.session.view.MessageUIDs(p.session.ctx(), message)
	if err != nil {
		return nil, err
	}
	var alone []uint32
	err = p.session.view.Fetch(p.session.ctx(), uids, folder.FetchThread, func(r *folder.MessageRow) error {
		if threadID(r) == id {
			alone = append(alone, r.UID)
		}
		return nil
	})
	return alone, err
}
