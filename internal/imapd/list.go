// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// list is LIST. Of the extended syntax (RFC 5258) it does what a client of
// SPECIAL-USE or CHILDREN may ask for, and refuses RECURSIVEMATCH.
func (s *session) list(cmd *wire.List) (wire.Code, error) {
	if !cmd.Extended && cmd.Patterns[0] == "" {
		// The client asks for the separator.
		s.w.List(&wire.ListRow{Attributes: []string{`\Noselect`}, Separator: separator})
		return "", nil
	}
	if cmd.Select&wire.SelectRecursiveMatch != 0 {
		return "", bad("This server does not offer RECURSIVEMATCH.")
	}
	if err := s.checkStatus(cmd.Status); err != nil {
		return "", err
	}
	folders, err := s.Folders.Folders(s.ctx(), s.box)
	if err != nil {
		return "", err
	}
	var subscribed map[string]bool
	if cmd.Select&wire.SelectSubscribed != 0 || cmd.Return&wire.ReturnSubscribed != 0 {
		if subscribed, err = s.subscriptions(); err != nil {
			return "", err
		}
	}
	patterns := make([]pattern, len(cmd.Patterns))
	for i, p := range cmd.Patterns {
		patterns[i] = newPattern(cmd.Reference, p)
	}
	for _, row := range listRows(folders, subscribed, cmd.Select) {
		if !slices.ContainsFunc(patterns, func(p pattern) bool { return p.matches(row.Mailbox) }) {
			continue
		}
		s.w.List(&row.ListRow)
		if cmd.Return&wire.ReturnStatus != 0 && row.folder != nil {
			// One that was deleted meanwhile has no status.
			if err := s.writeStatus(row.Mailbox, cmd.Status); err != nil && !fault.Is(err, fault.NotFound) {
				return "", err
			}
		}
	}
	return "", nil
}

// listRow is a name that LIST may show. A name that has only children has no
// folder.
type listRow struct {
	wire.ListRow
	folder *folder.Folder
}

// listRows makes the rows of all names that the selection options leave, in
// order.
func listRows(folders []folder.Folder, subscribed map[string]bool, choose wire.ListSelect) []listRow {
	named := map[string]*folder.Folder{}
	parent := map[string]bool{}
	names := make([]string, 0, len(folders))
	add := func(name string) {
		if _, ok := named[name]; !ok {
			named[name] = nil
			names = append(names, name)
		}
	}
	for i := range folders {
		add(folders[i].Name)
		named[folders[i].Name] = &folders[i]
	}
	if choose&wire.SelectSubscribed != 0 {
		for name := range subscribed {
			add(name)
		}
	}
	for _, name := range slices.Clone(names) {
		for i := range len(name) {
			if name[i] == separator {
				parent[name[:i]] = true
				add(name[:i])
			}
		}
	}
	slices.SortFunc(names, byName)
	rows := make([]listRow, 0, len(names))
	for _, name := range names {
		f := named[name]
		switch {
		case choose&wire.SelectSubscribed != 0 && !subscribed[name],
			choose&wire.SelectSpecialUse != 0 && (f == nil || f.Special == ""):
			continue
		}
		row := listRow{wire.ListRow{Separator: separator, Mailbox: name}, f}
		row.Attributes = attributes(f, parent[name], subscribed[name])
		rows = append(rows, row)
	}
	return rows
}

func attributes(f *folder.Folder, parent, subscribed bool) []string {
	var a []string
	if f == nil {
		a = append(a, `\Noselect`)
	}
	if parent {
		a = append(a, `\HasChildren`)
	} else {
		a = append(a, `\HasNoChildren`)
	}
	if subscribed {
		a = append(a, `\Subscribed`)
	}
	if f != nil && f.Special != "" {
		a = append(a, f.Special)
	}
	return a
}

// byName puts INBOX first.
func byName(a, b string) int {
	if (a == folder.Inbox) != (b == folder.Inbox) {
		if a == folder.Inbox {
			return -1
		}
		return 1
	}
	return strings.Compare(a, b)
}

func (s *session) subscriptions() (map[string]bool, error) {
	names, err := s.Folders.Subscriptions(s.ctx(), s.box)
	if err != nil {
		return nil, err
	}
	subscribed := make(map[string]bool, len(names))
	for _, n := range names {
		subscribed[n] = true
	}
	return subscribed, nil
}
