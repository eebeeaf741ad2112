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

// listed is a folder as the source lists it.
type listed struct {
	name       string // UTF-8
	delim      string // "" if it has no levels
	attrs      []imap.MailboxAttr
	subscribed bool
}

func (l *listed) has(attrs ...imap.MailboxAttr) bool {
	return slices.ContainsFunc(attrs, func(a imap.MailboxAttr) bool { return slices.Contains(l.attrs, a) })
}

// closed reports whether there is no mail in it, but only below.
func (l *listed) closed() bool { return l.has(imap.MailboxAttrNoSelect, imap.MailboxAttrNonExistent) }

// namespaces are where the source keeps whose folders.
type namespaces struct {
	personal []string // prefixes; the first of them is taken away
	others   []string // prefixes of what belongs to other people, or to all
}

// attribute is what a special use is called in a list (RFC 6154).
func attribute(l *listed) string {
	for _, use := range []string{folder.Sent, folder.Drafts, folder.Junk, folder.Trash, folder.Archive} {
		if l.has(imap.MailboxAttr(use)) {
			return use
		}
	}
	return ""
}

// chart finds for each folder of a source a folder here: no two get the same.
type chart struct {
	spaces namespaces
	taken  map[string]bool   // names given away
	given  map[string]string // by the name there, also of folders that are only above others
}

// newChart prepares for the folders of a source. special are the names of our
// folders by special use.
func newChart(all []listed, spaces namespaces, special map[string]string) *chart {
	c := &chart{spaces: spaces, taken: map[string]bool{folder.Inbox: true}, given: map[string]string{}}
	give := func(l *listed, use string) {
		to := special[use]
		if to == "" || c.taken[to] || strings.EqualFold(l.name, folder.Inbox) || l.closed() {
			return
		}
		c.taken[to], c.given[l.name] = true, to
	}
	for i := range all { // what the source says comes before what names suggest
		give(&all[i], attribute(&all[i]))
	}
	for i := range all {
		if levels := c.levels(&all[i]); len(levels) == 1 && attribute(&all[i]) == "" {
			give(&all[i], folder.UseOf(levels[0]))
		}
	}
	return c
}

// levels takes a name apart, without the prefix of the personal namespace.
func (c *chart) levels(l *listed) []string {
	if strings.EqualFold(l.name, folder.Inbox) {
		return []string{folder.Inbox}
	}
	name := l.name
	for _, prefix := range c.spaces.personal {
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

// target returns where a folder's mail goes. Those above others are to be
// asked for first.
func (c *chart) target(l *listed) string {
	if known, ok := c.given[l.name]; ok {
		return known
	}
	name := folder.Inbox
	if !strings.EqualFold(l.name, folder.Inbox) {
		name = c.free(c.below(l, c.levels(l)))
	}
	c.given[l.name] = name
	return name
}

// below puts a folder under what became of the one above it.
func (c *chart) below(l *listed, levels []string) string {
	own := folder.FitLevel(levels[len(levels)-1])
	above := ""
	if cut := strings.LastIndex(l.name, l.delim); l.delim != "" && cut > 0 && len(levels) > 1 {
		if known, ok := c.given[l.name[:cut]]; ok {
			above = known
		} else { // it is not listed
			for i := range levels[:len(levels)-1] {
				levels[i] = folder.FitLevel(levels[i])
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
	return folder.Shallow(above + string(folder.Separator) + own)
}

// free makes a name that is not too long and that no other folder got.
func (c *chart) free(name string) string {
	name = folder.Shorten(name, folder.MaxName)
	for n, own := 2, name; c.taken[name]; n++ {
		more := fmt.Sprintf(" (%d)", n)
		name = folder.Shorten(own, folder.MaxName-len(more)) + more
	}
	c.taken[name] = true
	return name
}

// wanted reports whether a folder is to be copied: if some were chosen, those;
// else all that have mail of their own.
func (c *chart) wanted(l *listed, chosen []string) bool {
	if l.closed() {
		return false
	}
	if len(chosen) > 0 {
		plain := strings.Join(c.levels(l), string(folder.Separator))
		return slices.ContainsFunc(chosen, func(name string) bool { return name == l.name || name == plain })
	}
	if l.has(imap.MailboxAttrAll, imap.MailboxAttrFlagged, imap.MailboxAttrImportant) {
		return false // what it shows is in other folders
	}
	return !slices.ContainsFunc(c.spaces.others, func(prefix string) bool { return prefix != "" && strings.HasPrefix(l.name, prefix) })
}

// arrange sorts folders so that each comes after the one above it, and of those
// with the same name first those that have mail.
func arrange(all []listed) {
	slices.SortFunc(all, func(a, b listed) int {
		if inbox := strings.EqualFold(a.name, folder.Inbox); inbox != strings.EqualFold(b.name, folder.Inbox) {
			if inbox {
				return -1
			}
			return 1
		}
		if c := strings.Compare(a.name, b.name); c != 0 || a.closed() == b.closed() {
			return c
		}
		if b.closed() {
			return -1
		}
		return 1
	})
}

// shifted is how names have what is not ASCII (RFC 3501 §5.1.3).
var shifted = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,").WithPadding(base64.NoPadding)

// decodable reports whether the client library can decode a name of a folder: it
// hangs up if it can't.
func decodable(name string) bool {
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
		text, err := shifted.DecodeString(code)
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
