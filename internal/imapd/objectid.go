// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// Object ids (RFC 8474) are those of the rows, with a letter before them. A
// message keeps its own wherever it is copied or moved to in its mailbox, a
// folder keeps its own when it is renamed.
const (
	mailboxPrefix = "F"
	emailPrefix   = "M"
	threadPrefix  = "T"
	// A thread that an application named with other characters than an object
	// id may have is told in base64.
	oddThreadPrefix = "B"
	// A message that is in no thread, or in one whose name is too long for an
	// id, is alone in one of its own.
	alonePrefix = "S"

	maxObjectID = 255
)

func mailboxID(id db.ID) string { return mailboxPrefix + id.String() }

func emailID(id db.ID) string { return emailPrefix + id.String() }

func threadID(r *folder.Row) string {
	id := threadPrefix + r.Thread
	if strings.ContainsFunc(r.Thread, notInID) {
		id = oddThreadPrefix + base64.RawURLEncoding.EncodeToString([]byte(r.Thread))
	}
	if r.Thread == "" || len(id) > maxObjectID {
		id = alonePrefix + r.Message.String()
	}
	return id
}

func notInID(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
}

// objects makes the tests EMAILID and THREADID.
func (p *program) objects(c folder.Criterion, k *wire.SearchKey) (folder.Criterion, error) {
	c.Test, c.Text = folder.InUIDs, ""
	var err error
	c.UIDs, err = p.ofObject(k)
	if p.left -= len(c.UIDs); err == nil && p.left < 0 {
		err = no(wire.CodeLimit, "The search names too many messages.")
	}
	return c, err
}

// ofObject returns the UIDs of the messages with an id; what can't be one, no
// message has.
func (p *program) ofObject(k *wire.SearchKey) ([]uint32, error) {
	kind, id := k.Text[:min(1, len(k.Text))], k.Text[min(1, len(k.Text)):]
	switch {
	case k.Op == wire.SearchEmailID && kind == emailPrefix, k.Op == wire.SearchThreadID && kind == alonePrefix:
		message, err := db.ParseID(id)
		if err != nil {
			return nil, nil //nolint:nilerr // nothing has that id
		}
		if kind == alonePrefix {
			return p.alone(message, k.Text)
		}
		return p.view.OfMessage(p.ctx(), message)
	case k.Op == wire.SearchThreadID && kind == oddThreadPrefix:
		name, err := base64.RawURLEncoding.DecodeString(id)
		// What is no text PostgreSQL would not even look for.
		if err != nil || !strings.ContainsFunc(string(name), notInID) || !utf8.Valid(name) || slices.Contains(name, 0) {
			return nil, nil //nolint:nilerr // nothing has that id
		}
		return p.view.OfThread(p.ctx(), p.login.Account, string(name))
	case k.Op == wire.SearchThreadID && kind == threadPrefix && !strings.ContainsFunc(id, notInID):
		return p.view.OfThread(p.ctx(), p.login.Account, id)
	}
	return nil, nil
}

// alone returns the UIDs of a message if it has this thread id, as one that is
// alone.
func (p *program) alone(message db.ID, id string) ([]uint32, error) {
	uids, err := p.view.OfMessage(p.ctx(), message)
	if err != nil {
		return nil, err
	}
	var alone []uint32
	err = p.view.Fetch(p.ctx(), uids, folder.WantThread, func(r *folder.Row) error {
		if threadID(r) == id {
			alone = append(alone, r.UID)
		}
		return nil
	})
	return alone, err
}
