// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// list handles LIST, with the options of RFC 5258, SPECIAL-USE (RFC 6154) and STATUS (RFC 5819). No
// folder is remote, so REMOTE adds none.
func (s *session) list(cmd *wire.List) (wire.Code, error) {
	if !cmd.Extended && cmd.Patterns[0] == "" {
		// The client asks for the separator.
		s.w.List(&wire.ListData{Attributes: []string{`\Noselect`}, Separator: separator})
		return "", nil
	}
	s.enableForStatus(cmd.Status)
	folders, err := s.Folders.List(s.ctx(), s.mailboxID)
	if err != nil {
		return "", err
	}
	l := newListQuery(cmd, folders)
	l.extended = cmd.Extended || s.rev2
	if cmd.Select&wire.ListSelectSubscribed != 0 || cmd.Return&wire.ListReturnSubscribed != 0 {
		if l.subscribed, err = s.subscriptions(); err != nil {
			return "", err
		}
	}
	for _, row := range l.rows() {
		s.w.List(&row)
		if f := l.folders[row.Mailbox]; f != nil && cmd.Return&wire.ListReturnStatus != 0 {
			// A folder that was deleted meanwhile has none.
			if err := s.writeStatus(f.Name, f, cmd.Status); err != nil && !fault.Is(err, fault.NotFound) {
				return "", err
			}
		}
	}
	return "", nil
}

// listQuery is the state of a LIST.
type listQuery struct {
	cmd        *wire.List
	extended   bool // whether the client knows \NonExistent
	patterns   []pattern
	folders    map[string]*folder.Folder
	parents    map[string]bool // names that have folders below them
	subscribed map[string]bool // nil if not needed
}

func newListQuery(cmd *wire.List, folders []folder.Folder) *listQuery {
	l := &listQuery{cmd: cmd, folders: map[string]*folder.Folder{}, parents: map[string]bool{}}
	for _, p := range cmd.Patterns {
		l.patterns = append(l.patterns, newPattern(cmd.Reference, p))
	}
	for i := range folders {
		name := folders[i].Name
		l.folders[name] = &folders[i]
		for above := range parentNames(name) {
			l.parents[above] = true
		}
	}
	return l
}

// parentNames yields the parents of a name.
func parentNames(name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range len(name) {
			if name[i] == separator && !yield(name[:i]) {
				return
			}
		}
	}
}

// rows returns the responses, in order. A name that is not selected is included in two cases: for
// RECURSIVEMATCH, when a name below it is selected but not shown (RFC 5258 §3.3), and without any
// selection option, when only names below it exist.
func (l *listQuery) rows() []wire.ListData {
	chosen, below, hidden := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for name := range l.candidates() {
		if !l.isSelected(name) {
			continue
		}
		chosen[name] = true
		shown := l.matches(name)
		for above := range parentNames(name) {
			below[above] = true
			hidden[above] = hidden[above] || !shown
		}
	}
	names := make([]string, 0, len(chosen))
	for name := range chosen {
		names = append(names, name)
	}
	recursive := l.cmd.Select&wire.ListSelectRecursiveMatch != 0
	for name := range below {
		if !chosen[name] && (recursive && hidden[name] || l.filters() == 0) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, compareNames)
	rows := make([]wire.ListData, 0, len(names))
	for _, name := range names {
		if !l.matches(name) {
			continue
		}
		row := wire.ListData{Separator: separator, Mailbox: name, Attributes: l.attributes(name)}
		if recursive && below[name] {
			row.ChildInfo = l.childInfo()
		}
		rows = append(rows, row)
	}
	return rows
}

// filters returns the options that exclude names.
func (l *listQuery) filters() wire.ListSelect {
	return l.cmd.Select & (wire.ListSelectSubscribed | wire.ListSelectSpecialUse)
}

// candidates returns the names that may be selected: folders, or subscriptions, whether or not the
// folder exists.
func (l *listQuery) candidates() map[string]bool {
	if l.cmd.Select&wire.ListSelectSubscribed != 0 {
		return l.subscribed
	}
	names := make(map[string]bool, len(l.folders))
	for name := range l.folders {
		names[name] = true
	}
	return names
}

// isSelected reports whether a candidate satisfies every option.
func (l *listQuery) isSelected(name string) bool {
	if l.cmd.Select&wire.ListSelectSpecialUse == 0 {
		return true
	}
	f := l.folders[name]
	return f != nil && f.SpecialUse != ""
}

func (l *listQuery) matches(name string) bool {
	s := newPreparedName(name)
	return slices.ContainsFunc(l.patterns, func(p pattern) bool { return p.matchesName(s) })
}

// attributes returns the attributes of a name. Without a folder they begin with \NonExistent, which
// clients that use the extended syntax understand.
func (l *listQuery) attributes(name string) []string {
	var a []string
	f := l.folders[name]
	switch {
	case f == nil && l.extended:
		a = append(a, `\NonExistent`)
	case f == nil:
		a = append(a, `\Noselect`)
	}
	if l.parents[name] {
		a = append(a, `\HasChildren`)
	} else {
		a = append(a, `\HasNoChildren`)
	}
	if l.subscribed[name] {
		a = append(a, `\Subscribed`)
	}
	if f != nil && f.SpecialUse != "" {
		a = append(a, f.SpecialUse)
	}
	return a
}

// childInfo returns the options that a name below satisfies.
func (l *listQuery) childInfo() (info []string) {
	if l.cmd.Select&wire.ListSelectSubscribed != 0 {
		info = append(info, "SUBSCRIBED")
	}
	if l.cmd.Select&wire.ListSelectSpecialUse != 0 {
		info = append(info, "SPECIAL-USE")
	}
	return info
}

// compareNames orders names, with INBOX first.
func compareNames(a, b string) int {
	if (a == folder.Inbox) != (b == folder.Inbox) {
		if a == folder.Inbox {
			return -1
		}
		return 1
	}
	return strings.Compare(a, b)
}

func (s *session) subscriptions() (map[string]bool, error) {
	names, err := s.Folders.Subscriptions(s.ctx(), s.mailboxID)
	if err != nil {
		return nil, err
	}
	subscribed := make(map[string]bool, len(names))
	for _, n := range names {
		subscribed[n] = true
	}
	return subscribed, nil
}
