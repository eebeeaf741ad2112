// SPDX-License-Identifier: Apache-2.0

package wire

// Create is CREATE, with the special uses asked for (RFC 6154 §3), such as
// \Drafts, as the client spelled them.
type Create struct {
	Mailbox    string // may end in the hierarchy separator
	SpecialUse []string
}

// Delete is DELETE.
type Delete struct{ Mailbox string }

// Rename is RENAME.
type Rename struct{ From, To string }

// Subscribe is SUBSCRIBE.
type Subscribe struct{ Mailbox string }

// Unsubscribe is UNSUBSCRIBE.
type Unsubscribe struct{ Mailbox string }

// Name returns the command's name.
func (*Create) Name() string { return "CREATE" }

// Name returns the command's name.
func (*Delete) Name() string { return "DELETE" }

// Name returns the command's name.
func (*Rename) Name() string { return "RENAME" }

// Name returns the command's name.
func (*Subscribe) Name() string { return "SUBSCRIBE" }

// Name returns the command's name.
func (*Unsubscribe) Name() string { return "UNSUBSCRIBE" }

func (r *Reader) create() Command {
	cmd := Create{Mailbox: r.mailbox()}
	if !r.accept(' ') {
		return &cmd
	}
	r.list(1, func() {
		if !r.acceptWord("USE") {
			fail(bad("There is no such CREATE parameter."))
		}
		r.sp()
		r.list(maxListItems, func() {
			if !r.accept('\\') {
				fail(errSyntax)
			}
			cmd.SpecialUse = append(cmd.SpecialUse, `\`+r.atom())
		})
	})
	return &cmd
}

func (r *Reader) rename() Command {
	from := r.mailbox()
	r.sp()
	return &Rename{from, r.mailbox()}
}
