// SPDX-License-Identifier: Apache-2.0

package wire

// ListSelect are the selection options of LIST (RFC 5258 §3.1).
type ListSelect uint8

// The selection options.
const (
	SelectSubscribed ListSelect = 1 << iota
	SelectRemote
	SelectRecursiveMatch
	SelectSpecialUse // RFC 6154
)

// ListReturn are the return options of LIST (RFC 5258 §3.2).
type ListReturn uint8

// The return options. ReturnStatus comes with List.Status (RFC 5819).
const (
	ReturnSubscribed ListReturn = 1 << iota
	ReturnChildren
	ReturnSpecialUse
	ReturnStatus
)

// List is LIST. A plain one has one pattern; with Extended the client used
// the syntax of RFC 5258.
type List struct {
	Reference string
	Patterns  []string // in UTF-8, with the wildcards * and %
	Select    ListSelect
	Return    ListReturn
	Status    StatusItems
	Extended  bool
}

// Lsub is LSUB (RFC 3501 §6.3.9).
type Lsub struct{ Reference, Pattern string }

// Name returns the command's name.
func (*List) Name() string { return "LIST" }

// Name returns the command's name.
func (*Lsub) Name() string { return "LSUB" }

func (r *Reader) listMailboxes() (Command, error) {
	var cmd List
	if r.peek() == '(' {
		cmd.Extended = true
		if err := r.list(maxListItems, func() error { return r.listSelect(&cmd) }); err != nil {
			return nil, err
		}
		const needs = SelectSubscribed | SelectSpecialUse
		if cmd.Select&SelectRecursiveMatch != 0 && cmd.Select&needs == 0 {
			return nil, bad("RECURSIVEMATCH needs another selection option.")
		}
		if err := r.sp(); err != nil {
			return nil, err
		}
	}
	var err error
	if cmd.Reference, err = r.mailbox(); err != nil {
		return nil, err
	}
	if err = r.sp(); err != nil {
		return nil, err
	}
	if err = r.patterns(&cmd); err != nil {
		return nil, err
	}
	if !r.accept(' ') {
		return &cmd, nil
	}
	if !r.acceptWord("RETURN") {
		return nil, errSyntax
	}
	if err = r.sp(); err != nil {
		return nil, err
	}
	cmd.Extended = true
	err = r.list(maxListItems, func() error { return r.listReturn(&cmd) })
	return &cmd, err
}

func (r *Reader) patterns(cmd *List) error {
	one := func() error {
		p, err := r.pattern()
		cmd.Patterns = append(cmd.Patterns, p)
		return err
	}
	if r.peek() != '(' {
		return one()
	}
	cmd.Extended = true
	if err := r.list(MaxPatterns, one); err != nil {
		return err
	}
	if len(cmd.Patterns) == 0 {
		return bad("LIST needs a pattern.")
	}
	return nil
}

func (r *Reader) listSelect(cmd *List) error {
	switch string(r.word()) {
	case "SUBSCRIBED":
		cmd.Select |= SelectSubscribed
	case "REMOTE":
		cmd.Select |= SelectRemote
	case "RECURSIVEMATCH":
		cmd.Select |= SelectRecursiveMatch
	case "SPECIAL-USE":
		cmd.Select |= SelectSpecialUse
	default:
		return bad("There is no such LIST selection option.")
	}
	return nil
}

func (r *Reader) listReturn(cmd *List) (err error) {
	switch string(r.word()) {
	case "SUBSCRIBED":
		cmd.Return |= ReturnSubscribed
	case "CHILDREN":
		cmd.Return |= ReturnChildren
	case "SPECIAL-USE":
		cmd.Return |= ReturnSpecialUse
	case "STATUS":
		if err := r.sp(); err != nil {
			return err
		}
		cmd.Return |= ReturnStatus
		cmd.Status, err = r.statusItems()
	default:
		return bad("There is no such LIST return option.")
	}
	return err
}

func (r *Reader) lsub() (Command, error) {
	ref, err := r.mailbox()
	if err != nil {
		return nil, err
	}
	if err = r.sp(); err != nil {
		return nil, err
	}
	pattern, err := r.pattern()
	return &Lsub{ref, pattern}, err
}
