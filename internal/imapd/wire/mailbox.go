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

func (r *Reader) create() (Command, error) {
	var cmd Create
	var err error
	if cmd.Mailbox, err = r.mailbox(); err != nil || !r.accept(' ') {
		return &cmd, err
	}
	err = r.list(1, func() error {
		if !r.acceptWord("USE") {
			return bad("There is no such CREATE parameter.")
		}
		if err := r.sp(); err != nil {
			return err
		}
		return r.list(maxListItems, func() error {
			if !r.accept('\\') {
				return errSyntax
			}
			use, err := r.atom()
			cmd.SpecialUse = append(cmd.SpecialUse, `\`+use)
			return err
		})
	})
	return &cmd, err
}

func (r *Reader) delete() (Command, error) {
	name, err := r.mailbox()
	return &Delete{name}, err
}

func (r *Reader) rename() (Command, error) {
	from, err := r.mailbox()
	if err != nil {
		return nil, err
	}
	if err = r.sp(); err != nil {
		return nil, err
	}
	to, err := r.mailbox()
	return &Rename{from, to}, err
}

func (r *Reader) subscribe() (Command, error) {
	name, err := r.mailbox()
	return &Subscribe{name}, err
}

func (r *Reader) unsubscribe() (Command, error) {
	name, err := r.mailbox()
	return &Unsubscribe{name}, err
}
