// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"errors"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// create handles CREATE, also with a special use (RFC 6154 §3). A trailing separator only declares
// that the client wants to create folders below the new one (RFC 3501 §6.3.3).
func (s *session) create(cmd *wire.Create) (wire.Code, error) {
	special := ""
	if len(cmd.SpecialUse) > 0 {
		special = canonicalSpecialUse(cmd.SpecialUse[0])
	}
	for _, use := range cmd.SpecialUse {
		if canonicalSpecialUse(use) != special {
			return "", no(wire.CodeUseAttr, "A folder has one special use here.")
		}
	}
	made, err := s.Folders.CreateSpecial(s.ctx(), s.mailboxID, trimSeparator(cmd.Mailbox), special)
	var f *fault.Error
	if errors.As(err, &f) && (f.Code == folder.CodeUnknownSpecialUse || f.Code == folder.CodeSpecialUseTaken) {
		return "", no(wire.CodeUseAttr, f.Message)
	}
	if err != nil {
		return "", err
	}
	if name := trimSeparator(cmd.Mailbox); name != made.Name { // the name was normalized
		s.writeName(&made, name)
	}
	return wire.CodeMailboxID(mailboxID(made.ID)), nil
}

// canonicalSpecialUse returns an attribute with the case that package folder uses.
func canonicalSpecialUse(use string) string {
	for _, known := range []string{folder.Sent, folder.Drafts, folder.Junk, folder.Trash, folder.Archive} {
		if strings.EqualFold(use, known) {
			return known
		}
	}
	return use
}

func trimSeparator(name string) string { return strings.TrimSuffix(name, string(separator)) }
