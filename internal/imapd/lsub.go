// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// lsub handles LSUB (RFC 3501 §6.3.9): subscribed names, whether or not the folder exists. A parent
// of subscribed names at which % stops is shown with \Noselect if it is not subscribed itself.
func (s *session) lsub(cmd *wire.Lsub) (wire.Code, error) {
	if cmd.Pattern == "" {
		s.w.Lsub(&wire.ListData{Attributes: []string{`\Noselect`}, Separator: separator})
		return "", nil
	}
	subscribed, err := s.subscriptions()
	if err != nil {
		return "", err
	}
	p := newPattern(cmd.Reference, cmd.Pattern)
	show := map[string]bool{} // name → whether it is subscribed itself
	for name := range subscribed {
		if p.matches(name) {
			show[name] = true
		} else if strings.HasSuffix(cmd.Pattern, "%") {
			for i := range len(name) {
				if name[i] == separator && p.matches(name[:i]) && !subscribed[name[:i]] {
					show[name[:i]] = false
				}
			}
		}
	}
	names := make([]string, 0, len(show))
	for name := range show {
		names = append(names, name)
	}
	slices.SortFunc(names, compareNames)
	for _, name := range names {
		row := wire.ListData{Separator: separator, Mailbox: name}
		if !show[name] {
			row.Attributes = []string{`\Noselect`}
		}
		s.w.Lsub(&row)
	}
	return "", nil
}
