// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/archive"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
)

// names says where the folders of an archive go.
type names struct {
	below   string            // all of them go below this one; "" for none
	special map[string]string // our folders by special use
	taken   map[string]string // which folder of the archive goes to one of those
	here    map[string]*target
	there   map[archive.Folder]*target
	exist   map[string]bool // our folders when the import began
	full    *target         // for those that can't be made any more; nil while they can
}

// plan looks at what there is, and makes the folder that was asked for.
func (x *importing) plan() error {
	all, err := x.Folders.Folders(x.ctx, x.Mailbox)
	if err != nil {
		return err
	}
	x.names = &names{special: map[string]string{}, taken: map[string]string{}, here: map[string]*target{}, there: map[archive.Folder]*target{}, exist: map[string]bool{}}
	for _, f := range all {
		x.names.exist[f.Name] = true
		if f.Special != "" {
			x.names.special[f.Special] = f.Name
		}
	}
	if x.In.Folder == "" {
		return nil
	}
	if err := x.make(x.In.Folder, "", true); err != nil {
		return err
	}
	f, err := x.Folders.Status(x.ctx, x.Mailbox, x.In.Folder)
	x.names.below = f.Name
	return err
}

// make makes a folder, unless it is there.
func (x *importing) make(name, special string, subscribed bool) error {
	_, err := x.Folders.CreateSpecial(x.ctx, x.Mailbox, name, special)
	var f *fault.Error
	switch {
	case err == nil:
	case !fault.Is(err, fault.Conflict):
		return err
	case errors.As(err, &f) && f.Code == folder.CodeUseTaken:
		return x.make(name, "", subscribed)
	default:
		return nil // who made it has decided about the subscription
	}
	if !subscribed {
		return nil
	}
	if err := x.Folders.Subscribe(x.ctx, x.Mailbox, name); !fault.Is(err, fault.Limited) {
		return err
	}
	return nil
}

// target finds the folder for one of the archive's, and makes it if it is not
// there.
func (x *importing) target(f archive.Folder) (*target, error) {
	key := archive.Folder{Name: f.Name, Special: f.Special}
	if to := x.names.there[key]; to != nil {
		return to, nil
	}
	name, special := x.names.resolve(f.Name, f.Special)
	to := x.names.here[name]
	if to == nil && x.names.full != nil && !x.names.exist[name] {
		return x.names.full, nil
	}
	if to == nil {
		to = &target{name: name}
		err := x.make(name, special, f.Subscribed)
		if fault.Is(err, fault.Limited) {
			x.names.full = &target{closed: "The mailbox has as many folders as it may have."}
			return x.names.full, nil
		}
		if err != nil {
			return nil, err
		}
		if !x.All {
			if to.contents, err = x.Folders.Contents(x.ctx, x.Mailbox, name); err != nil {
				return nil, err
			}
			if to.contents.Empty() {
				to.contents = nil
			}
		}
		x.names.here[name] = to
	}
	if len(x.names.there) < maxNames && len(f.Name)+len(f.Special) <= folder.MaxName {
		x.names.there[key] = to
	}
	return to, nil
}

// maxNames bounds how many names of an archive are remembered. Long ones never
// are: they may have any length.
const maxNames = 10_000

// resolve returns the name of a folder of the archive here, and the special use
// that it is to have if it is made.
func (n *names) resolve(name, special string) (string, string) {
	levels := strings.Split(name, "/")
	atInbox := name == "" || strings.EqualFold(name, folder.Inbox)
	switch {
	case atInbox && n.below == "":
		return folder.Inbox, ""
	case atInbox:
		return n.below, ""
	case n.below != "":
		return folder.FitName(append(strings.Split(n.below, "/"), levels...)), ""
	}
	use := special
	if use == "" && len(levels) == 1 {
		use = folder.UseOf(name)
	}
	if to := n.special[use]; to != "" && (n.taken[to] == "" || n.taken[to] == name) {
		n.taken[to] = name
		return to, ""
	}
	if !slices.Contains([]string{folder.Sent, folder.Drafts, folder.Junk, folder.Trash, folder.Archive}, special) || n.special[special] != "" {
		special = ""
	}
	to := folder.FitName(levels)
	if special != "" {
		n.special[special], n.taken[to] = to, name
	}
	return to, special
}
