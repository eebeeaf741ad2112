// SPDX-License-Identifier: Apache-2.0

package wire

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

// MailboxStatus is STATUS.
type MailboxStatus struct {
	Mailbox string
	Items   StatusItems
}

// Name returns the command's name.
func (*MailboxStatus) Name() string { return "STATUS" }

func (r *Reader) status() (Command, error) {
	var cmd MailboxStatus
	var err error
	if cmd.Mailbox, err = r.mailbox(); err != nil {
		return nil, err
	}
	if err = r.sp(); err != nil {
		return nil, err
	}
	cmd.Items, err = r.statusItems()
	return &cmd, err
}

func (r *Reader) statusItems() (StatusItems, error) {
	var items StatusItems
	err := r.list(maxListItems, func() error {
		w := r.word()
		for i, name := range statusNames {
			if string(w) == name {
				items |= 1 << i
				return nil
			}
		}
		return bad("There is no such STATUS item.")
	})
	if err == nil && items == 0 {
		return 0, bad("STATUS needs an item.")
	}
	return items, err
}
