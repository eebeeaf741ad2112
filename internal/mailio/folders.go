// SPDX-License-Identifier: Apache-2.0

package mailio

import (
	"errors"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailfile"
)

// folderMap maps an archive's folders to local folders.
type folderMap struct {
	root         string            // parent of all of them; "" for none
	bySpecialUse map[string]string // local folders by special use
	sourceOf     map[string]string // archive folder that maps to each of those
	byName       map[string]*targetFolder
	byFolder     map[mailfile.Folder]*targetFolder
	existing     map[string]bool // local folders when the import began
	overflow     *targetFolder   // for folders that can't be created any more; nil until then
}

// loadFolders loads the local folders, and creates the requested folder.
func (x *importer) loadFolders() error {
	all, err := x.Folders.List(x.ctx, x.Mailbox)
	if err != nil {
		return err
	}
	x.folders = &folderMap{bySpecialUse: map[string]string{}, sourceOf: map[string]string{}, byName: map[string]*targetFolder{}, byFolder: map[mailfile.Folder]*targetFolder{}, existing: map[string]bool{}}
	for _, f := range all {
		x.folders.existing[f.Name] = true
		if f.SpecialUse != "" {
			x.folders.bySpecialUse[f.SpecialUse] = f.Name
		}
	}
	if x.ImportOptions.Folder == "" {
		return nil
	}
	if err := x.createFolder(x.ImportOptions.Folder, "", true); err != nil {
		return err
	}
	f, err := x.Folders.Status(x.ctx, x.Mailbox, x.ImportOptions.Folder)
	x.folders.root = f.Name
	return err
}

// createFolder creates a folder unless it exists.
func (x *importer) createFolder(name, special string, subscribed bool) error {
	_, err := x.Folders.CreateSpecial(x.ctx, x.Mailbox, name, special)
	var f *fault.Error
	switch {
	case err == nil:
	case !fault.Is(err, fault.Conflict):
		return err
	case errors.As(err, &f) && f.Code == folder.CodeSpecialUseTaken:
		return x.createFolder(name, "", subscribed)
	default:
		return nil // its creator decided about the subscription
	}
	if !subscribed {
		return nil
	}
	if err := x.Folders.Subscribe(x.ctx, x.Mailbox, name); !fault.Is(err, fault.RateLimited) {
		return err
	}
	return nil
}

// targetFor returns the local folder for one of the archive's, and creates it if necessary.
func (x *importer) targetFor(f mailfile.Folder) (*targetFolder, error) {
	key := mailfile.Folder{Name: f.Name, SpecialUse: f.SpecialUse}
	if to := x.folders.byFolder[key]; to != nil {
		return to, nil
	}
	name, special := x.folders.resolve(f.Name, f.SpecialUse)
	to := x.folders.byName[name]
	if to == nil && x.folders.overflow != nil && !x.folders.existing[name] {
		return x.folders.overflow, nil
	}
	if to == nil {
		to = &targetFolder{name: name}
		err := x.createFolder(name, special, f.Subscribed)
		if fault.Is(err, fault.RateLimited) {
			x.folders.overflow = &targetFolder{failure: "The mailbox has as many folders as it may have."}
			return x.folders.overflow, nil
		}
		if err != nil {
			return nil, err
		}
		if !x.KeepDuplicates {
			if to.contents, err = x.Folders.NewDuplicateFinder(x.ctx, x.Mailbox, name); err != nil {
				return nil, err
			}
			if to.contents.Empty() {
				to.contents = nil
			}
		}
		x.folders.byName[name] = to
	}
	if len(x.folders.byFolder) < maxCachedFolders && len(f.Name)+len(f.SpecialUse) <= folder.MaxNameBytes {
		x.folders.byFolder[key] = to
	}
	return to, nil
}

// maxCachedFolders is the maximum number of remembered archive folder names. Long names are never
// remembered: they may have any length.
const maxCachedFolders = 10_000

// resolve returns the local name of an archive's folder, and its special use if it must be created.
func (n *folderMap) resolve(name, special string) (string, string) {
	levels := strings.Split(name, "/")
	atInbox := name == "" || strings.EqualFold(name, folder.Inbox)
	switch {
	case atInbox && n.root == "":
		return folder.Inbox, ""
	case atInbox:
		return n.root, ""
	case n.root != "":
		return folder.SanitizeName(append(strings.Split(n.root, "/"), levels...)), ""
	}
	use := special
	if use == "" && len(levels) == 1 {
		use = folder.SpecialUseOf(name)
	}
	if to := n.bySpecialUse[use]; to != "" && (n.sourceOf[to] == "" || n.sourceOf[to] == name) {
		n.sourceOf[to] = name
		return to, ""
	}
	if !slices.Contains([]string{folder.Sent, folder.Drafts, folder.Junk, folder.Trash, folder.Archive}, special) || n.bySpecialUse[special] != "" {
		special = ""
	}
	to := folder.SanitizeName(levels)
	if special != "" {
		n.bySpecialUse[special], n.sourceOf[to] = to, name
	}
	return to, special
}
