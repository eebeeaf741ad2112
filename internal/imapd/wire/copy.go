// SPDX-License-Identifier: Apache-2.0

package wire

// Copy is COPY.
type Copy struct {
	Messages NumSet
	Mailbox  string
}

// Move is MOVE (RFC 6851).
type Move struct {
	Messages NumSet
	Mailbox  string
}

// Expunge is EXPUNGE or UID EXPUNGE (RFC 4315), which has Messages.
type Expunge struct{ Messages NumSet }

// Name returns the command's name.
func (c *Copy) Name() string { return uidName(c.Messages.UID, "COPY") }

// Name returns the command's name.
func (c *Move) Name() string { return uidName(c.Messages.UID, "MOVE") }

// Name returns the command's name.
func (c *Expunge) Name() string { return uidName(c.Messages.UID, "EXPUNGE") }

func (r *Reader) copy(uid bool) Command {
	set, mailbox := r.setAndMailbox(uid)
	return &Copy{set, mailbox}
}

func (r *Reader) move(uid bool) Command {
	set, mailbox := r.setAndMailbox(uid)
	return &Move{set, mailbox}
}

func (r *Reader) setAndMailbox(uid bool) (NumSet, string) {
	set := r.numSet(uid)
	r.sp()
	return set, r.mailbox()
}
