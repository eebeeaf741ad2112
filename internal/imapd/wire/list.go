// SPDX-License-Identifier: Apache-2.0

package wire

// ListSelect are the selection options of LIST (RFC 5258 §3.1).
type ListSelect uint8

// The selection options.
const (
	ListSelectSubscribed ListSelect = 1 << iota
	ListSelectRemote
	ListSelectRecursiveMatch
	ListSelectSpecialUse // RFC 6154
)

// ListReturn are the return options of LIST (RFC 5258 §3.2).
type ListReturn uint8

// The return options. ListReturnStatus comes with List.Status (RFC 5819).
const (
	ListReturnSubscribed ListReturn = 1 << iota
	ListReturnChildren
	ListReturnSpecialUse
	ListReturnStatus
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

func (r *Reader) listMailboxes() Command {
	var cmd List
	if r.peek() == '(' {
		cmd.Extended = true
		r.list(maxListItems, func() {
			option, known := listSelectNames[string(r.word())]
			if !known {
				fail(bad("There is no such LIST selection option."))
			}
			cmd.Select |= option
		})
		const needs = ListSelectSubscribed | ListSelectSpecialUse
		if cmd.Select&ListSelectRecursiveMatch != 0 && cmd.Select&needs == 0 {
			fail(bad("RECURSIVEMATCH needs another selection option."))
		}
		r.sp()
	}
	cmd.Reference = r.mailbox()
	r.sp()
	pattern := func() { cmd.Patterns = append(cmd.Patterns, r.pattern()) }
	if r.peek() == '(' {
		cmd.Extended = true
		if r.list(MaxPatterns, pattern); len(cmd.Patterns) == 0 {
			fail(bad("LIST needs a pattern."))
		}
	} else {
		pattern()
	}
	if !r.accept(' ') {
		return &cmd
	}
	if !r.acceptWord("RETURN") {
		fail(errSyntax)
	}
	r.sp()
	cmd.Extended = true
	r.list(maxListItems, func() {
		option, known := listReturnNames[string(r.word())]
		if !known {
			fail(bad("There is no such LIST return option."))
		}
		if cmd.Return |= option; option == ListReturnStatus {
			r.sp()
			cmd.Status = r.statusItems()
		}
	})
	return &cmd
}

var (
	listSelectNames = map[string]ListSelect{
		"SUBSCRIBED": ListSelectSubscribed, "REMOTE": ListSelectRemote, "RECURSIVEMATCH": ListSelectRecursiveMatch, "SPECIAL-USE": ListSelectSpecialUse,
	}
	listReturnNames = map[string]ListReturn{
		"SUBSCRIBED": ListReturnSubscribed, "CHILDREN": ListReturnChildren, "SPECIAL-USE": ListReturnSpecialUse, "STATUS": ListReturnStatus,
	}
)

func (r *Reader) lsub() Command {
	reference := r.mailbox()
	r.sp()
	return &Lsub{reference, r.pattern()}
}
