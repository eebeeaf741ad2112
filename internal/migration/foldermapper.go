// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/internal/folder"
)

// listedFolder is a folder as the source lists it.
type listedFolder struct {
	name       string // UTF-8
	delim      string // "" if there is no hierarchy
	attrs      []imap.MailboxAttr
	subscribed bool
}

func (l *listedFolder) hasAttr(attrs ...imap.MailboxAttr) bool {
	return slices.ContainsFunc(attrs, func(a imap.MailboxAttr) bool { return slices.Contains(l.attrs, a) })
}

// isNoSelect reports whether the folder can contain no messages, only subfolders.
func (l *listedFolder) isNoSelect() bool {
	return l.hasAttr(imap.MailboxAttrNoSelect, imap.MailboxAttrNonExistent)
}

// namespaces are the source's namespaces.
type namespaces struct {
	personal []string // prefixes; the first that matches is removed
	others   []string // prefixes of other users' and shared folders
}

// specialUse returns the special use in a folder's attributes (RFC 6154).
func specialUse(l *listedFolder) string {
	for _, use := range []string{folder.Sent, folder.Drafts, folder.Junk, folder.Trash, folder.Archive} {
		if l.hasAttr(imap.MailboxAttr(use)) {
			return use
		}
	}
	return ""
}

// folderMapper maps the source's folders to local names. No two folders get the same name.
type folderMapper struct {
	namespaces namespaces
	used       map[string]bool   // names already assigned
	targets    map[string]string // by source name; also has folders that only contain subfolders
}

// newFolderMapper returns a mapper for the source's folders. special has the names of the local
// folders by special use.
func newFolderMapper(all []listedFolder, spaces namespaces, special map[string]string) *folderMapper {
	c := &folderMapper{namespaces: spaces, used: map[string]bool{folder.Inbox: true}, targets: map[string]string{}}
	give := func(l *listedFolder, use string) {
		to := special[use]
		if to == "" || c.used[to] || strings.EqualFold(l.name, folder.Inbox) || l.isNoSelect() {
			return
		}
		c.used[to], c.targets[l.name] = true, to
	}
	for i := range all { // attributes from the source take precedence over guesses from names
		give(&all[i], specialUse(&all[i]))
	}
	for i := range all {
		if levels := c.levels(&all[i]); len(levels) == 1 && specialUse(&all[i]) == "" {
			give(&all[i], folder.SpecialUseOf(levels[0]))
		}
	}
	return c
}

// levels splits a name into its levels, without the prefix of the personal namespace.
func (c *folderMapper) levels(l *listedFolder) []string {
	if strings.EqualFold(l.name, folder.Inbox) {
		return []string{folder.Inbox}
	}
	name := l.name
	for _, prefix := range c.namespaces.personal {
		if rest, ok := strings.CutPrefix(name, prefix); ok && prefix != "" && rest != "" {
			name = rest
			break
		}
	}
	if l.delim == "" {
		return []string{name}
	}
	return strings.Split(name, l.delim)
}

// target returns the local name for a folder. Call it for parent folders first.
func (c *folderMapper) target(l *listedFolder) string {
	if known, ok := c.targets[l.name]; ok {
		return known
	}
	name := folder.Inbox
	if !strings.EqualFold(l.name, folder.Inbox) {
		name = c.uniqueName(c.nameBelow(l, c.levels(l)))
	}
	c.targets[l.name] = name
	return name
}

// nameBelow returns the folder's name below the local name of its parent.
func (c *folderMapper) nameBelow(l *listedFolder, levels []string) string {
	own := folder.SanitizeLevel(levels[len(levels)-1])
	above := ""
	if cut := strings.LastIndex(l.name, l.delim); l.delim != "" && cut > 0 && len(levels) > 1 {
		if known, ok := c.targets[l.name[:cut]]; ok {
			above = known
		} else { // the parent is not listed
			for i := range levels[:len(levels)-1] {
				levels[i] = folder.SanitizeLevel(levels[i])
			}
			above = strings.Join(levels[:len(levels)-1], string(folder.Separator))
		}
	}
	if above == "" {
		if strings.EqualFold(own, folder.Inbox) { // not the source's own INBOX
			own += " (2)"
		}
		return own
	}
	return folder.FlattenName(above + string(folder.Separator) + own)
}

// uniqueName shortens a name to the limit and makes it unique.
func (c *folderMapper) uniqueName(name string) string {
	name = folder.TruncateName(name, folder.MaxNameBytes)
	for n, own := 2, name; c.used[name]; n++ {
		more := fmt.Sprintf(" (%d)", n)
		name = folder.TruncateName(own, folder.MaxNameBytes-len(more)) + more
	}
	c.used[name] = true
	return name
}

// includes reports whether to copy a folder: the chosen folders if there are any, else all with
// messages of their own.
func (c *folderMapper) includes(l *listedFolder, chosen []string) bool {
	if l.isNoSelect() {
		return false
	}
	if len(chosen) > 0 {
		plain := strings.Join(c.levels(l), string(folder.Separator))
		return slices.ContainsFunc(chosen, func(name string) bool { return name == l.name || name == plain })
	}
	if l.hasAttr(imap.MailboxAttrAll, imap.MailboxAttrFlagged, imap.MailboxAttrImportant) {
		return false // its messages are in other folders
	}
	return !slices.ContainsFunc(c.namespaces.others, func(prefix string) bool { return prefix != "" && strings.HasPrefix(l.name, prefix) })
}

// sortFolders sorts folders so that parents come first. Of folders with the same name, those with
// messages come first.
func sortFolders(all []listedFolder) {
	slices.SortFunc(all, func(a, b listedFolder) int {
		if inbox := strings.EqualFold(a.name, folder.Inbox); inbox != strings.EqualFold(b.name, folder.Inbox) {
			if inbox {
				return -1
			}
			return 1
		}
		if c := strings.Compare(a.name, b.name); c != 0 || a.isNoSelect() == b.isNoSelect() {
			return c
		}
		if b.isNoSelect() {
			return -1
		}
		return 1
	})
}

// utf7Base64 is the encoding of non-ASCII characters in folder names (RFC 3501 §5.1.3).
var utf7Base64 = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,").WithPadding(base64.NoPadding)

// canDecode reports whether the client library can decode a folder name. The library closes the
// connection if it can't.
func canDecode(name string) bool {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return false
	}
	for shift := false; ; {
		plain, rest, more := strings.Cut(name, "&")
		if !more {
			return true
		}
		code, after, closed := strings.Cut(rest, "-")
		if !closed || shift && plain == "" && code != "" {
			return false
		}
		shift, name = code != "", after
		text, err := utf7Base64.DecodeString(code)
		if err != nil || shift && len(text) == 0 || len(text)%2 != 0 {
			return false
		}
		var units []uint16
		for ; len(text) > 0; text = text[2:] {
			units = append(units, uint16(text[0])<<8|uint16(text[1]))
		}
		if slices.ContainsFunc(utf16.Decode(units), func(r rune) bool { return r >= ' ' && r < 0x7f || r == utf8.RuneError }) {
			return false
		}
	}
}
