// SPDX-License-Identifier: Apache-2.0

package wire

import "slices"

// StatusItems are the items of STATUS, as bits.
type StatusItems uint16

// The items (RFC 9051 §6.3.11; RECENT RFC 3501, HIGHESTMODSEQ RFC 7162,
// APPENDLIMIT RFC 7889, MAILBOXID RFC 8474, DELETED-STORAGE RFC 9208).
const (
	StatusMessages StatusItems = 1 << iota
	StatusRecent
	StatusUIDNext
	StatusUIDValidity
	StatusUnseen
	StatusDeleted
	StatusSize
	StatusHighestModSeq
	StatusAppendLimit
	StatusMailboxID
	StatusDeletedStorage
)

var statusNames = [...]string{
	"MESSAGES", "RECENT", "UIDNEXT", "UIDVALIDITY", "UNSEEN", "DELETED", "SIZE",
	"HIGHESTMODSEQ", "APPENDLIMIT", "MAILBOXID", "DELETED-STORAGE",
}

// StatusCommand is STATUS.
type StatusCommand struct {
	Mailbox string
	Items   StatusItems
}

// Name returns the command's name.
func (*StatusCommand) Name() string { return "STATUS" }

func (r *Reader) status() Command {
	cmd := StatusCommand{Mailbox: r.mailbox()}
	r.sp()
	cmd.Items = r.statusItems()
	return &cmd
}

func (r *Reader) statusItems() (items StatusItems) {
	r.list(maxListItems, func() {
		i := slices.Index(statusNames[:], string(r.word()))
		if i < 0 {
			fail(bad("There is no such STATUS item."))
		}
		items |= 1 << i
	})
	if items == 0 {
		fail(bad("STATUS needs an item."))
	}
	return items
}
